//! A write that continues where it was if its waiter was dropped: otherwise a controller would send it again and again
//! amid many changes. Does not know what is written.

use futures::future::BoxFuture;

/// The write under way, if there is one.
#[derive(Default)]
pub(crate) struct Writing(Option<BoxFuture<'static, ()>>);

impl Writing {
    pub(crate) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Waits for the end of the write. Dropping this does not end it: the next call continues. `begin` returns the next
    /// write if none is under way.
    pub(crate) async fn go_on(&mut self, begin: impl FnOnce() -> Option<BoxFuture<'static, ()>>) {
        if self.0.is_none() {
            self.0 = begin();
        }
        if let Some(writing) = &mut self.0 {
            writing.await;
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures::FutureExt as _;
    use futures::channel::oneshot;

    use super::*;

    #[test]
    fn write_whose_waiter_was_dropped_is_not_begun_again() {
        let (end, ended) = oneshot::channel::<()>();
        let mut writing = Writing::default();
        let first = || Some(ended.map(drop).boxed());
        assert!(writing.go_on(first).now_or_never().is_none());
        assert!(!writing.is_idle());
        assert!(writing.go_on(|| unreachable!("one is under way")).now_or_never().is_none());
        end.send(()).unwrap();
        assert!(writing.go_on(|| unreachable!("it has ended only now")).now_or_never().is_some());
        assert!(writing.is_idle());
        assert!(writing.go_on(|| Some(ready(()).boxed())).now_or_never().is_some() && writing.is_idle());
        assert!(writing.go_on(|| None).now_or_never().is_some());
    }
}
