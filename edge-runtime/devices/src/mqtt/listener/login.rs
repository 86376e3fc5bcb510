//! Login of clients by the file of users, which is read for each of them: a change takes effect at once.

use std::cell::RefCell;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::hub::{Refusal, Who};
use super::rights::Rights;
use super::users::Users;
use crate::mqtt::file::open;

/// Bytes of the file.
const LONGEST: u64 = 64 << 10;
/// Timeout for reading the file.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before a wrong password is refused: there are better ways to try many.
pub(super) const PENANCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Logins {
    file: Option<PathBuf>,
    everybody: Rc<Rights>,
    /// The last message about the file, so that it is not logged for each client.
    told: RefCell<String>,
}

impl Logins {
    /// `file`: `None` without authentication.
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self { file, everybody: Rc::new(Rights::all()), told: RefCell::default() }
    }

    /// Reads the users from the file; `None` without a file.
    pub(super) async fn users(&self) -> Result<Option<Users>, Refusal> {
        let Some(path) = &self.file else { return Ok(None) };
        let read = timeout(PATIENCE, read(path)).await.unwrap_or_else(|late| Err(late.into()));
        let (users, wrong) = match read {
            Ok(text) => Users::read(&text),
            Err(error) => {
                self.tell(&format!("no client can connect: {}: {error}", path.display()));
                return Err(Refusal::Full);
            }
        };
        if wrong.is_empty() {
            self.told.borrow_mut().clear();
        } else {
            self.tell(&format!("{} has lines that are passed over: {}", path.display(), wrong.join("; ")));
        }
        Ok(Some(users))
    }

    fn tell(&self, why: &str) {
        if *self.told.borrow() != why {
            log::error!("{why}");
            why.clone_into(&mut self.told.borrow_mut());
        }
    }

    /// # Errors
    /// The code for the client.
    pub(super) fn who(
        &self,
        users: Option<&Users>,
        user: Option<&str>,
        password: Option<&[u8]>,
    ) -> Result<Who, Refusal> {
        match (users, user) {
            (None, _) => Ok(Who { user: None, rights: Rc::clone(&self.everybody) }),
            (Some(_), None) => Err(Refusal::NotAllowed),
            (Some(users), Some(user)) => {
                let rights = users.rights(user, password.unwrap_or_default()).ok_or(Refusal::Login)?;
                Ok(Who { user: Some(user.to_owned()), rights })
            }
        }
    }
}

async fn read(path: &Path) -> io::Result<String> {
    let file = open(path).await?;
    let about = file.metadata().await?;
    if about.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may read the passwords in it: its mode has to be 0600"));
    }
    if about.len() > LONGEST {
        return Err(io::Error::other(format!("it has more than {LONGEST} bytes")));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).await?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_counts_as_it_is_now_and_only_if_it_is_secret() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("users");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let logins = Logins::new(Some(path.clone()));
        let ask = |user| {
            let users = runtime.block_on(logins.users())?;
            logins.who(users.as_ref(), user, Some(b"secret")).map(|who| who.user)
        };
        let write = |text: &str, mode| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
        };
        assert_eq!(ask(Some("a")), Err(Refusal::Full), "there is no file");
        write("a secret all\n", 0o644);
        assert_eq!(ask(Some("a")), Err(Refusal::Full));
        write("a secret all\n", 0o600);
        assert_eq!(ask(Some("a")), Ok(Some("a".to_owned())));
        assert_eq!((ask(Some("b")), ask(None)), (Err(Refusal::Login), Err(Refusal::NotAllowed)));
        write("b secret all\n", 0o600);
        assert_eq!(ask(Some("a")), Err(Refusal::Login));
        write(&"x".repeat(70 << 10), 0o600);
        assert_eq!(ask(Some("b")), Err(Refusal::Full));
        std::fs::remove_file(&path).expect("removed");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
        assert_eq!(ask(Some("b")), Err(Refusal::Full));
        assert!(logins.told.borrow().contains("this is a pipe"), "{}", logins.told.borrow());
        assert!(Logins::new(None).who(None, None, None).is_ok());
    }
}
