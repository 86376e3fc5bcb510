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
/// The socket cannot be had, or the boot not noted beside it.
pub async fn run(socket: &Path) -> io::Result<()> {
    let listening = listen(socket)?;
    // Beside the socket, in memory: it is of this boot.
    let registrations = socket.with_extension("registrations");
    let callers = Rc::new(Callers::new(listening.note_boot()?, registrations));
    let work = async {
        tokio::select! {
            () = accept(&listening, &callers) => {}
            () = callers.ended() => {}
        }
    };
    LocalSet::new().run_until(work).await;
    Ok(())
}
