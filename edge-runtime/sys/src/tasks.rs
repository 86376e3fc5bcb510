//! The tasks of the one thread, beside its loop. Knows nothing of what they do.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use async_executor::{LocalExecutor, Task};

/// An executor that its tasks share. All are of one form, boxed: each form costs the binary some two kilobytes.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Rc<LocalExecutor<'static>>);

impl Tasks {
    /// Starts when the loop next waits. Dropping a task cancels it; detach a task that should continue.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> Task<()> {
        self.spawn_boxed(Box::pin(future))
    }

    fn spawn_boxed(&self, future: Pin<Box<dyn Future<Output = ()>>>) -> Task<()> {
        self.0.spawn(future)
    }

    /// Runs the tasks until `future` is ready.
    pub async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.run(future).await
    }
}
