//! Destinations of messages of the node: a broker, clients of its own listener, or both. Messages of one are not passed
//! to the other.

use std::collections::BTreeSet;
use std::time::Duration;

use sampan_devices_control::Settings;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::client::{self, Broker};
use super::filters::Filters;
use super::listener::{Listener, ROOM};
use super::news::News;
use super::queue::{Queue, queue};
use crate::twins::{Listening, Message};

/// Fewer messages than this find no room.
const SHORT: usize = 8;
/// Timeout for subscribers of the listener to have room again.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Outlets {
    opened: bool,
    broker: Option<Queue>,
    /// Whether the broker is connected. Nothing is queued for a disconnected one.
    up: bool,
    listener: Option<Listener>,
    /// Time since which no subscriber of the listener has room.
    short: Option<Instant>,
    dropped: u64,
}

impl Outlets {
    /// Opens what is configured, once. Returns whether clients may connect now. `filters`: additional topics to
    /// subscribe to, besides messages of devices.
    pub fn open(&mut self, settings: &Settings, node: &str, news: &mpsc::Sender<News>, filters: &Filters) -> bool {
        if std::mem::replace(&mut self.opened, true) {
            return false;
        }
        if let Some(mqtt) = &settings.mqtt {
            match Broker::new(mqtt, node) {
                Ok(broker) => {
                    let (queue, waiting) = queue();
                    self.broker = Some(queue);
                    drop(tokio::task::spawn_local(client::run(broker, news.clone(), waiting, filters.clone())));
                }
                Err(why) => log::error!("no MQTT broker is used: {why}"),
            }
        }
        if let Some(listen) = &settings.listen {
            match Listener::start(listen, news.clone()) {
                Ok(listener) => {
                    listener.hear(&filters.wanted());
                    self.listener = Some(listener);
                }
                Err(why) => log::error!("no MQTT client is heard: {why}"),
            }
        }
        self.listener.is_some()
    }

    /// Sets the topics that are received from clients of the listener beside those of devices. The connection to a
    /// broker subscribes to them itself.
    pub fn hear(&self, wanted: &BTreeSet<String>) {
        if let Some(listener) = &self.listener {
            listener.hear(wanted);
        }
    }

    /// The broker has connected or disconnected.
    pub const fn broker(&mut self, up: bool) {
        self.up = up;
    }

    fn queue(&self) -> Option<&Queue> {
        self.broker.as_ref().filter(|_| self.up)
    }

    /// Number of messages that fit everywhere now. A client of the listener that does not read does not count.
    #[must_use]
    pub fn room(&mut self) -> usize {
        let listener = self.listener.as_ref().map(Listener::room);
        self.short = match listener {
            Some(room) if room < SHORT => self.short.or_else(|| Some(Instant::now())),
            _ => None,
        };
        let listener = listener.filter(|_| self.short.is_none_or(|since| since.elapsed() < PATIENCE));
        match (self.queue().map(Queue::room), listener) {
            (None, None) if self.listener.is_some() => ROOM,
            (broker, listener) => broker.into_iter().chain(listener).min().unwrap_or(0),
        }
    }

    pub fn publish(&mut self, message: Message) {
        if let Some(listener) = &self.listener {
            listener.publish(&message);
        }
        if let Some(queue) = self.broker.as_ref().filter(|_| self.up) {
            self.dropped += u64::from(!queue.put(message));
        } else if self.listener.is_none() {
            self.dropped += 1;
        }
    }

    /// Publishes a message whose sender waits for the result: to the broker, which acknowledges it; without a broker to
    /// the listener. Returns `None` without either, or if the queue is full.
    pub fn publish_confirmed(&mut self, message: Message) -> Option<oneshot::Receiver<()>> {
        let confirmed = match &self.broker {
            Some(_) => self.queue()?.put_confirmed(message.clone())?,
            None => {
                self.listener.as_ref().filter(|listener| listener.room() > 0)?;
                let (confirm, confirmed) = oneshot::channel();
                // Its receiver is waiting.
                let _ = confirm.send(());
                confirmed
            }
        };
        if let Some(listener) = &self.listener {
            listener.publish(&message);
        }
        Some(confirmed)
    }

    /// Messages for which the broker had no room since the last call.
    #[must_use]
    pub fn dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Messages that the listener retains of these topics.
    pub fn retained(&self, topics: &[String]) -> Vec<(String, Vec<u8>)> {
        self.listener.as_ref().map(|listener| listener.retained(topics)).unwrap_or_default()
    }

    /// State of the listener; `None` if it is off.
    pub fn listening(&self) -> Option<Listening> {
        self.listener.as_ref().map(Listener::counters)
    }
}
