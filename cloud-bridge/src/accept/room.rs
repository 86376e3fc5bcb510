//! A limited number of seats, with a limit for each holder: an address or a user. A newcomer to a full room takes a
//! seat that can be spared, if there is one. Pure, except for the notification about a lost seat.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Source;

/// The holder for which seats are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    Address(Source),
    User(Arc<str>),
}

impl From<Source> for Holder {
    fn from(source: Source) -> Self {
        Self::Address(source)
    }
}

impl From<&Arc<str>> for Holder {
    fn from(user: &Arc<str>) -> Self {
        Self::User(Arc::clone(user))
    }
}

#[derive(Debug)]
pub(super) struct Room {
    seats: usize,
    share: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Numbers are never reused.
    next: u64,
    taken: HashMap<u64, Taken>,
    holders: HashMap<Holder, usize>,
    /// Seats that can be spared, ordered by the time since when.
    spare: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Taken {
    holder: Holder,
    /// Key in `spare`.
    spare: Option<u64>,
    lost: Arc<Notify>,
}

impl Room {
    pub(super) fn new((seats, share): (usize, usize)) -> Arc<Self> {
        Arc::new(Self { seats, share, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat that cannot be spared yet. A holder at its limit replaces one of its own seats; in a full room one
    /// of the holder with the most seats to spare is replaced.
    pub(super) fn enter(self: &Arc<Self>, holder: impl Into<Holder>) -> Option<Seat> {
        let holder = holder.into();
        let mut table = self.table();
        let own = table.holders.get(&holder).copied().unwrap_or_default();
        if own >= self.share {
            let victim = table.longest(&holder)?;
            table.take(victim);
        } else if table.taken.len() >= self.seats {
            let victim = table.crowd().and_then(|crowd| table.longest(&crowd))?;
            table.take(victim);
        }
        let number = table.number();
        let lost = Arc::new(Notify::new());
        table.taken.insert(number, Taken { holder: holder.clone(), spare: None, lost: Arc::clone(&lost) });
        *table.holders.entry(holder).or_default() += 1;
        drop(table);
        Some(Seat { room: Arc::clone(self), number, lost })
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.table().taken.len()
    }
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The seat of this holder that could be spared for longest. Linear in the size of the room, but only called if it
    /// is full.
    fn longest(&self, holder: &Holder) -> Option<u64> {
        let own = |number: &&u64| self.taken.get(number).is_some_and(|taken| taken.holder == *holder);
        self.spare.values().find(own).copied()
    }

    /// The holder with the most seats to spare.
    fn crowd(&self) -> Option<Holder> {
        let mut spare: HashMap<&Holder, usize> = HashMap::new();
        for taken in self.spare.values().filter_map(|number| self.taken.get(number)) {
            *spare.entry(&taken.holder).or_default() += 1;
        }
        spare.into_iter().max_by_key(|(_, count)| *count).map(|(holder, _)| holder.clone())
    }

    fn take(&mut self, number: u64) {
        if let Some(taken) = self.leave(number) {
            taken.lost.notify_one();
        }
    }

    fn leave(&mut self, number: u64) -> Option<Taken> {
        let taken = self.taken.remove(&number)?;
        if let Some(spare) = taken.spare {
            self.spare.remove(&spare);
        }
        if let Some(count) = self.holders.get_mut(&taken.holder) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&taken.holder);
            }
        }
        Some(taken)
    }
}

/// A seat, released when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    room: Arc<Room>,
    number: u64,
    lost: Arc<Notify>,
}

impl Seat {
    /// Sets whether a newcomer may take the seat.
    pub(super) fn spare(&self, spare: bool) {
        let mut table = self.room.table();
        let order = table.number();
        let Some(taken) = table.taken.get_mut(&self.number) else { return };
        let was = match spare {
            true if taken.spare.is_some() => return,
            true => taken.spare.replace(order),
            false => taken.spare.take(),
        };
        if let Some(was) = was {
            table.spare.remove(&was);
        }
        if spare {
            table.spare.insert(order, self.number);
        }
    }

    /// Notified once when the seat is lost.
    pub(super) fn lost(&self) -> Arc<Notify> {
        Arc::clone(&self.lost)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.table().leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    fn is_lost(seat: &Seat) -> bool {
        seat.lost().notified().now_or_never().is_some()
    }

    #[test]
    fn a_source_beyond_its_share_takes_from_itself_and_else_is_refused() {
        let room = Room::new((4, 2));
        let seats: Vec<Seat> = (0..2).filter_map(|_| room.enter(source(1))).collect();
        assert!(room.enter(source(1)).is_none(), "neither can be spared");
        seats[1].spare(true);
        seats[0].spare(true);
        seats[0].spare(true);
        let third = room.enter(source(1)).unwrap();
        assert!(is_lost(&seats[1]) && !is_lost(&seats[0]), "which could be spared first");
        drop((seats, third));
        let table = room.table();
        assert_eq!((table.taken.len(), table.holders.len(), table.spare.len()), (0, 0, 0));
    }

    #[test]
    fn a_full_room_takes_from_the_source_with_most_to_spare() {
        let room = Room::new((4, 3));
        let quiet = room.enter(source(1)).unwrap();
        quiet.spare(true);
        let crowd: Vec<Seat> = (0..3).filter_map(|_| room.enter(source(2))).collect();
        assert!(room.enter(source(3)).is_some_and(|seat| is_lost(&quiet) && !is_lost(&seat)), "the only one to spare");
        let quiet = room.enter(source(1)).unwrap();
        quiet.spare(true);
        crowd.iter().take(2).for_each(|seat| seat.spare(true));
        crowd[0].spare(false);
        crowd[0].spare(true);
        let last = room.enter(source(3)).unwrap();
        assert!(is_lost(&crowd[1]) && !is_lost(&crowd[0]) && !is_lost(&quiet) && !is_lost(&last));
    }

    #[test]
    fn ipv6_prefix_is_one_source_and_mapped_address_is_ipv4() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_eq!(of("::ffff:192.0.2.1"), source(1));
    }
}
