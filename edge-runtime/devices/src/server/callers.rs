//! Connected callers: the daemon, whose newest connection counts, and a few clients.

use sampan_devices_control::{FromHelper, Named};
use sampan_sys::vec_map::VecMap;

use super::connection::Connection;

/// Clients at once, and callers altogether.
const CLIENTS: usize = 8;
const CALLERS: usize = 16;

/// Kind of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has not identified itself yet.
    Unknown,
    Daemon,
    Client,
}

#[derive(Debug, Default)]
pub struct Callers {
    callers: VecMap<u64, Caller>,
    daemon: Option<u64>,
}

#[derive(Debug)]
struct Caller {
    connection: Connection,
    role: Role,
    /// Questions that are answered again with each change: number and device.
    watches: Vec<(u64, Option<Named>)>,
}

impl Callers {
    pub fn came(&mut self, id: u64, connection: Connection) {
        if self.callers.len() >= CALLERS {
            log::warn!("too many callers: one is sent away");
            return connection.cut();
        }
        self.callers.insert(id, Caller { connection, role: Role::Unknown, watches: Vec::new() });
    }

    #[must_use]
    pub fn role(&self, id: u64) -> Option<Role> {
        self.callers.get(&id).map(|caller| caller.role)
    }

    /// The caller is the daemon. This replaces an older connection of it.
    pub fn is_daemon(&mut self, id: u64) {
        if let Some(older) = self.daemon.filter(|older| *older != id) {
            self.cut(older);
        }
        if let Some(caller) = self.callers.get_mut(&id) {
            caller.role = Role::Daemon;
            self.daemon = Some(id);
        }
    }

    /// It is a client, if there is room for one.
    pub fn is_client(&mut self, id: u64) {
        let clients = self.callers.values().filter(|caller| caller.role == Role::Client).count();
        if clients >= CLIENTS {
            log::warn!("more than {CLIENTS} clients: one is sent away");
            self.cut(id);
        } else if let Some(caller) = self.callers.get_mut(&id) {
            caller.role = Role::Client;
        }
    }

    /// Whether it was the daemon.
    pub fn cut(&mut self, id: u64) -> bool {
        if let Some(caller) = self.callers.remove(&id) {
            caller.connection.cut();
        }
        let daemon = self.daemon == Some(id);
        if daemon {
            self.daemon = None;
        }
        daemon
    }

    /// Returns false if the daemon did not read its messages, and was disconnected for that.
    pub fn tell_daemon(&mut self, line: &FromHelper) -> bool {
        let Some(id) = self.daemon else { return true };
        self.tell(id, line)
    }

    /// False if it has no room, and was cut for it.
    pub fn tell(&mut self, id: u64, line: &FromHelper) -> bool {
        let told = self.callers.get(&id).is_none_or(|caller| caller.connection.tell(line));
        if !told {
            log::warn!("a caller does not read what it is told: it is sent away");
            self.cut(id);
        }
        told
    }

    /// Answers this question again with each change.
    pub fn watch(&mut self, id: u64, question: u64, device: Option<Named>) {
        const MOST: usize = 16;
        if let Some(caller) = self.callers.get_mut(&id)
            && caller.watches.len() < MOST
        {
            caller.watches.push((question, device));
        }
    }

    /// Clients that watch these devices: caller, number of the question, device.
    pub fn watches(&self) -> impl Iterator<Item = (u64, u64, Option<&Named>)> {
        self.callers
            .iter()
            .flat_map(|(id, caller)| caller.watches.iter().map(|(question, device)| (*id, *question, device.as_ref())))
    }

    /// Lets all have what waits for them.
    pub async fn finish(self) {
        for caller in self.callers.into_values() {
            caller.connection.finish().await;
        }
    }
}
