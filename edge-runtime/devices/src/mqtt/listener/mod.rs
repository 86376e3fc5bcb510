//! A small MQTT 3.1.1 server for nodes without a broker: clients speak with the node and with each other. Everything is in memory
//! and bounded, and a session lives as long as its connection.
//!
//! | file | owns |
//! |---|---|
//! | `frame`, `packet`, `connect`, `encode` | packets as bytes |
//! | `filter` | names and filters of topics |
//! | `hub` | what follows from what is said: no I/O, no clock |
//! | `client`, `outbox` | one client, and what waits for it |
//! | `message`, `retained` | messages that are held |
//! | `users`, `rights` | who may do what |
//! | `login` | the file of users |
//! | `accept`, `connection`, `shared` | sockets |
//! | `fuzz` | the whole without sockets |

mod accept;
mod client;
mod connect;
mod connection;
mod encode;
pub(super) mod filter;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod hub;
mod login;
mod message;
mod outbox;
mod packet;
mod retained;
mod rights;
mod shared;
mod users;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use sampan_devices_control::Listen;
use tokio::sync::mpsc;

use super::news::News;
use crate::twins::{FILTERS, Listening, Message, SAID};
use hub::Hub;
use login::Logins;
use shared::Shared;

pub use filter::Filter;

/// Messages that are said at once.
pub(super) const ROOM: usize = 256;

/// The node's end of it.
#[derive(Debug)]
pub struct Listener(Rc<Shared>);

impl Listener {
    /// Listens from now on, on this thread's set of local tasks.
    ///
    /// # Errors
    /// The address is malformed, or not allowed for such a listener.
    pub fn start(listen: &Listen, news: mpsc::Sender<News>) -> Result<Self, String> {
        let address = listen.checked()?;
        let file = (!listen.users_file.is_empty()).then(|| PathBuf::from(&listen.users_file));
        let shared = Rc::new(Shared::new(Hub::new(&FILTERS, &SAID), Logins::new(file), news));
        drop(tokio::task::spawn_local(accept::accept(address, Rc::clone(&shared))));
        let tidied = Rc::clone(&shared);
        drop(tokio::task::spawn_local(async move { tidied.tidy().await }));
        if !listen.users_file.is_empty() {
            let followed = Rc::clone(&shared);
            drop(tokio::task::spawn_local(async move { followed.follow_users().await }));
        }
        Ok(Self(shared))
    }

    /// Sets the topics that the node receives beside those of devices.
    pub fn hear(&self, wanted: &BTreeSet<String>) {
        self.0.with(|hub| hub.hear(wanted));
    }

    /// Publishes to all subscribers that have room.
    pub fn publish(&self, message: &Message) {
        self.0.with(|hub| hub.publish(&message.topic, &message.payload));
    }

    /// Number of messages for which a subscriber to the node has room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.with(|hub| hub.room()).unwrap_or(ROOM).min(ROOM)
    }

    /// Returns the retained messages of these topics.
    #[must_use]
    pub fn retained(&self, topics: &[String]) -> Vec<(String, Vec<u8>)> {
        if topics.is_empty() { Vec::new() } else { self.0.with(|hub| hub.retained(topics)) }
    }

    /// How it goes.
    #[must_use]
    pub fn counters(&self) -> Listening {
        self.0.with(|hub| hub.counters())
    }
}
