//! How many events of the broker and of MQTT clients one turn of the loop takes.

use tokio::sync::mpsc;

use crate::mqtt::News;

/// Maximum number of events of one turn, and of those that wait for the loop. Beyond it their sources wait.
pub(super) const NEWS: usize = 32;

/// Takes events that arrived together, to answer them together: each has few answers. A subscription is compared with
/// the topics of all devices, so it is the last one of its turn.
pub(super) fn together(first: News, more: &mut mpsc::Receiver<News>, mut take: impl FnMut(News)) {
    let takes_long = |news: &News| matches!(news, News::Subscribed(_));
    let mut is_last = takes_long(&first);
    take(first);
    for _ in 1..NEWS {
        if is_last {
            return;
        }
        let Ok(news) = more.try_recv() else { return };
        is_last = takes_long(&news);
        take(news);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of events that one turn takes of these, and number of those that are left.
    fn taken(events: impl IntoIterator<Item = News>) -> (usize, usize) {
        let (send, mut receive) = mpsc::channel(100);
        events.into_iter().for_each(|news| send.try_send(news).unwrap());
        let (first, mut taken) = (receive.try_recv().unwrap(), 0);
        together(first, &mut receive, |_| taken += 1);
        (taken, receive.len())
    }

    #[test]
    fn turn_takes_many_messages_but_one_subscription() {
        let subscribed = || News::Subscribed(Vec::new());
        assert_eq!(taken([News::Up]), (1, 0));
        assert_eq!(taken((0..NEWS + 3).map(|_| News::Down)), (NEWS, 3));
        assert_eq!(taken([subscribed(), subscribed(), subscribed()]), (1, 2));
        assert_eq!(taken([News::Up, News::Down, subscribed(), News::Down]), (3, 1));
    }
}
