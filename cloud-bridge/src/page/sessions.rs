//! Logins: tokens behind random names that browsers keep, bounded in number and time. Pure; in memory only.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of logins. One more ends the one that would expire first.
const MOST: usize = 256;
/// Lifetime of a login; afterwards the token is needed again.
pub(super) const LIFE: Duration = Duration::from_secs(8 * 3600);

#[derive(Default)]
pub(super) struct Sessions(HashMap<String, Session>);

struct Session {
    token: String,
    until: Instant,
}

impl Sessions {
    /// `id` is random.
    pub(super) fn open(&mut self, id: String, token: String, now: Instant) {
        self.0.retain(|_, session| now < session.until);
        if self.0.len() >= MOST {
            let first = self.0.iter().min_by_key(|(_, session)| session.until).map(|(id, _)| id.clone());
            first.map(|id| self.0.remove(&id));
        }
        self.0.insert(id, Session { token, until: now + LIFE });
    }

    pub(super) fn token(&self, id: &str, now: Instant) -> Option<String> {
        self.0.get(id).filter(|session| now < session.until).map(|session| session.token.clone())
    }

    pub(super) fn close(&mut self, id: &str) {
        self.0.remove(id);
    }
}

/// Not derived: tokens must not reach a log.
impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("open", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_and_are_so_many() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        sessions.open("a".into(), "token".into(), now);
        let soon = now + LIFE - Duration::from_secs(1);
        assert_eq!(sessions.token("a", soon).as_deref(), Some("token"));
        assert_eq!((sessions.token("a", now + LIFE), sessions.token("b", now)), (None, None));
        for number in 0..MOST {
            sessions.open(number.to_string(), "token".into(), now + Duration::from_secs(1));
        }
        assert_eq!((sessions.0.len(), sessions.token("a", now)), (MOST, None), "the oldest made room");
        sessions.close("0");
        assert_eq!(sessions.token("0", now), None);
        sessions.open("z".into(), "token".into(), now + LIFE * 2);
        assert_eq!(sessions.0.len(), 1, "what has ended makes room at once");
        assert!(!format!("{sessions:?}").contains("token"));
    }
}
