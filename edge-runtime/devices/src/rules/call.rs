//! Does what rules want done here: publishes at the broker, asks a server on this device. A few at a time, each for a bounded
//! time; every call has one answer.

use std::time::Duration;

use edge_protocol::message::{Call, CallFailure, CallResult};
use edge_protocol::topic::is_topic;
use sampan_devices_control::Rules;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::http::{self, failed};
use crate::mqtt::Outlets;
use crate::twins::Message;

/// Under way at once.
const AT_ONCE: usize = 16;
/// Timeout for the broker's acknowledgement.
const PUBLISH: Duration = Duration::from_secs(10);
/// Timeout for a server's answer.
const SERVE: Duration = Duration::from_secs(10);

/// An answer, by the number of its call.
pub type Answered = (u64, CallResult);

/// Calls under way.
#[derive(Debug)]
pub struct Calls {
    answers: mpsc::Sender<Answered>,
    under_way: usize,
}

impl Calls {
    /// Answers go there, as many as there is room for at once.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Answered>) {
        let (answers, receiver) = mpsc::channel(AT_ONCE);
        (Self { answers, under_way: 0 }, receiver)
    }

    /// An answer has been taken.
    pub fn done(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Begins one, to be answered later; or its answer, if that is known already.
    pub fn begin(&mut self, id: u64, call: Value, allowed: &Rules, outlets: &mut Outlets) -> Option<CallResult> {
        if self.under_way >= AT_ONCE {
            return Some(failed(CallFailure::Unavailable, "too many calls are under way"));
        }
        let call = match serde_json::from_value(call) {
            Ok(call) => call,
            Err(error) => return Some(failed(CallFailure::Refused, &format!("that is no call: {error}"))),
        };
        let answers = self.answers.clone();
        let may = match &call {
            Call::Publish { topic, .. } if !is_topic(topic) => {
                return Some(failed(CallFailure::Refused, "nothing can be published to such a topic"));
            }
            Call::Publish { namespace, topic, .. } => allowed.publish(namespace, topic),
            Call::Http { namespace, port, .. } => allowed.ask(namespace, *port),
        };
        if let Err(why) = may {
            return Some(failed(CallFailure::Forbidden, &why));
        }
        match call {
            Call::Publish { topic, payload, .. } => {
                let Some(confirmed) = outlets.publish_confirmed(Message { topic, payload }) else {
                    return Some(failed(CallFailure::Unavailable, "no MQTT broker is connected, or it is too slow"));
                };
                self.under_way += 1;
                tokio::task::spawn_local(async move {
                    let result = match timeout(PUBLISH, confirmed).await {
                        Ok(Ok(())) => CallResult::Published {},
                        Ok(Err(_)) => failed(CallFailure::Broken, "the broker went before it acknowledged the message"),
                        Err(_) => failed(CallFailure::Timeout, "the broker does not acknowledge the message"),
                    };
                    // The receiver is gone only when the helper ends.
                    drop(answers.send((id, result)).await);
                });
            }
            Call::Http { port, method, path, headers, body, .. } => {
                self.under_way += 1;
                tokio::task::spawn_local(async move {
                    let asked = http::ask(port, &method, &path, &headers, &body);
                    let result = timeout(SERVE, asked).await;
                    let result =
                        result.unwrap_or_else(|_| failed(CallFailure::Timeout, "the server does not answer in time"));
                    drop(answers.send((id, result)).await);
                });
            }
        }
        None
    }
}
