//! The sockets of the helper, until the daemon ends it.

use std::io;
use std::path::Path;
use std::rc::Rc;

use sampan_helper::listen;
use tokio::task::LocalSet;

use crate::control::{Callers, accept};

/// Serves at this socket until the daemon ends it.
///
/// # Errors
/// The socket cannot be had, or the certificate cannot be written.
pub async fn run(socket: &Path) -> io::Result<()> {
    let listening = listen(socket)?;
    let callers = Rc::new(Callers::default());
    let work = async {
        tokio::select! {
            () = accept(&listening, &callers) => Ok(()),
            ended = callers.ended() => ended,
        }
    };
    LocalSet::new().run_until(work).await
}
