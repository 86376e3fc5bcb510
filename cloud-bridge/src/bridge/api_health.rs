//! Whether the API answers this bridge, for readiness checks. Asks at most once in a few seconds, however many clients
//! check.

use std::time::Duration;

use kube::Client;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lifetime of an answer.
const GOOD_FOR: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(3);

/// The last answer.
#[derive(Default)]
pub(super) struct ApiHealth(Mutex<Option<(Instant, Result<(), String>)>>);

impl ApiHealth {
    /// # Errors
    /// The API does not answer: why, in a few words.
    pub(super) async fn answers(&self, client: &Client) -> Result<(), String> {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < GOOD_FOR
        {
            return answer.clone();
        }
        let asked = tokio::time::timeout(PATIENCE, client.apiserver_version()).await;
        let answer = match asked {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
