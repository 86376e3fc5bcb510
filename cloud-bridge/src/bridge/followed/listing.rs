//! Lists and watches of kinds that this build has no type for: turns their events into changes.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures::Stream;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};

use crate::bridge::name::{Name, name_of};

pub(super) type Events = Pin<Box<dyn Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Send>>;

/// A change of one kind.
pub(in crate::bridge) enum News<T> {
    One(Name, Option<T>),
    All(BTreeMap<Name, T>),
}

/// The list of one kind that is being read.
pub(in crate::bridge) struct Listing<T> {
    so_far: BTreeMap<Name, T>,
    /// Whether it was read once.
    pub(super) read: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { so_far: BTreeMap::new(), read: false }
    }
}

impl<T> Listing<T> {
    /// Takes an event; returns its error, if it is one.
    pub(in crate::bridge) fn take(
        &mut self,
        event: Result<Event<DynamicObject>, watcher::Error>,
        parse: impl Fn(&DynamicObject) -> Option<T>,
        tell: impl FnOnce(News<T>),
    ) -> Option<watcher::Error> {
        match event {
            Ok(Event::Init) => self.so_far.clear(),
            Ok(Event::InitApply(object)) => {
                self.so_far.extend(parse(&object).map(|parsed| (name_of(&object.metadata), parsed)));
            }
            Ok(Event::InitDone) => {
                self.read = true;
                tell(News::All(std::mem::take(&mut self.so_far)));
            }
            Ok(Event::Apply(object)) => tell(News::One(name_of(&object.metadata), parse(&object))),
            Ok(Event::Delete(object)) => tell(News::One(name_of(&object.metadata), None)),
            Err(error) => return Some(error),
        }
        None
    }
}
