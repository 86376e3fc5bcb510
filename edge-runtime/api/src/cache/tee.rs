//! An answer on its way to a pod, copied for the cache until it is complete or too large.

use std::cell::Cell;
use std::rc::Rc;

use super::admit::{MAX_ANSWER, Next, kept_headers, next};
use super::answer::Page;
use crate::asked::Asked;

/// Bytes of all copies.
const MAX_COPIES: usize = 2 << 20;

/// Bytes that copies take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room(Rc<Cell<usize>>);

/// A copy.
#[derive(Debug)]
pub(crate) struct Tee {
    page: Page,
    is_paged: bool,
    room: Room,
    /// It was too large.
    is_off: bool,
}

impl Tee {
    pub(crate) fn new(asked: &Asked, headers: &[(String, String)], room: Room) -> Self {
        let page = Page { token: asked.page.clone(), headers: kept_headers(headers), body: Vec::new() };
        Self { page, is_paged: asked.is_paged, room, is_off: false }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let all = self.room.0.get() + bytes.len();
        if self.is_off || self.page.body.len() + bytes.len() > MAX_ANSWER || all > MAX_COPIES {
            self.give_back();
            self.is_off = true;
            return;
        }
        self.room.0.set(all);
        self.page.body.extend_from_slice(bytes);
    }

    /// Whether it was given up.
    pub(crate) const fn is_off(&self) -> bool {
        self.is_off
    }

    /// The page and what follows it, when it has all come; `None` if it was too large.
    pub(crate) fn complete(mut self) -> Option<(Page, Next)> {
        if self.is_off {
            return None;
        }
        let next = next(self.is_paged, &self.page.body);
        let token = self.page.token.clone();
        let page = Page { token, headers: std::mem::take(&mut self.page.headers), body: self.give_back() };
        Some((page, next))
    }

    fn give_back(&mut self) -> Vec<u8> {
        let body = std::mem::take(&mut self.page.body);
        self.room.0.set(self.room.0.get().saturating_sub(body.len()));
        body
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::message::ApiRequest;

    use super::*;

    fn tee(room: &Room) -> Tee {
        let request = ApiRequest { method: "GET".into(), path: "/api".into(), headers: Vec::new(), has_body: false };
        Tee::new(&Asked::of(&request), &[], room.clone())
    }

    #[test]
    fn copies_have_a_limit_each_and_all_together() {
        let room = Room::default();
        let mut one = tee(&room);
        one.push(b"ab");
        assert_eq!(room.0.get(), 2);
        assert_eq!(one.complete().map(|(page, next)| (page.body, next)), Some((b"ab".to_vec(), Next::End)));
        assert_eq!(room.0.get(), 0);
        let mut large = tee(&room);
        large.push(&vec![0; MAX_ANSWER]);
        large.push(b"x");
        assert!(large.is_off() && room.0.get() == 0);
        assert!(large.complete().is_none());
        let mut all: Vec<_> = (0..3).map(|_| tee(&room)).collect();
        for tee in &mut all {
            tee.push(&vec![0; MAX_ANSWER]);
        }
        assert_eq!(all.iter().filter(|tee| tee.is_off()).count(), 1);
        drop(all);
        assert_eq!(room.0.get(), 0);
    }
}
