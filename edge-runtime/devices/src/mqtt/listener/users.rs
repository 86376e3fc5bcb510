//! The file of users: one a line, `NAME PASSWORD RIGHT...`, separated by white space. Reads text; knows no file.

use std::hint::black_box;
use std::rc::Rc;

use sampan_sys::vec_map::VecMap;

use super::rights::Rights;

/// Longest password, bytes.
const PASSWORD: usize = 256;
const USERS: usize = 256;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Users(VecMap<String, User>);

#[derive(Debug, PartialEq, Eq)]
struct User {
    password: String,
    rights: Rc<Rights>,
}

impl Users {
    /// Parses the file. Malformed lines are skipped and returned, so that one mistake does not lock out other users.
    pub(super) fn read(text: &str) -> (Self, Vec<String>) {
        let (mut users, mut wrong) = (Self::default(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            if let Err(why) = users.add(line) {
                wrong.push(format!("line {}: {why}", number + 1));
            }
        }
        (users, wrong)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next().filter(|name| !name.starts_with('#')) else { return Ok(()) };
        let password = words.next().filter(|password| password.len() <= PASSWORD);
        let password =
            password.ok_or_else(|| format!("a user and a password of at most {PASSWORD} bytes are wanted"))?;
        let mut rights = Rights::default();
        words.try_for_each(|word| rights.add(word))?;
        if rights == Rights::default() {
            return Err("the user has no right: all, device=NAMESPACE/NAME, topic=, read= or write=FILTER".to_owned());
        }
        if self.0.len() >= USERS {
            return Err(format!("more than {USERS} users"));
        }
        if self.0.contains_key(name) {
            return Err("the user was there before".to_owned());
        }
        self.0.insert(name.to_owned(), User { password: password.to_owned(), rights: Rc::new(rights) });
        Ok(())
    }

    /// Returns the rights of this user if the password is right. Takes the same time for an unknown user.
    pub(super) fn rights(&self, name: &str, password: &[u8]) -> Option<Rc<Rights>> {
        let user = self.0.get(name);
        let right = same(user.map_or("", |user| &user.password).as_bytes(), password);
        user.filter(|_| right).map(|user| Rc::clone(&user.rights))
    }

    /// Whether this user may still do just that.
    pub(super) fn still(&self, name: &str, rights: &Rights) -> bool {
        self.0.get(name).is_some_and(|user| *user.rights == *rights)
    }
}

/// How long it takes says nothing of where they differ.
fn same(wanted: &[u8], given: &[u8]) -> bool {
    let at = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
    let differs = (0..PASSWORD).fold(0, |differs, place| black_box(differs | (at(wanted, place) ^ at(given, place))));
    (differs == 0) & (wanted.len() == given.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_line_by_line() {
        let text = "# who\n\nt1 secret device=default/t1\n  app\tpass  read=#   write=a/b\nbad\nworse x\nt1 other all\nlong x all=1\n";
        let (users, wrong) = Users::read(text);
        assert_eq!(users.0.keys().map(String::as_str).collect::<Vec<_>>(), ["app", "t1"]);
        let lines: Vec<&str> = wrong.iter().filter_map(|why| why.split_once(':')).map(|(line, _)| line).collect();
        assert_eq!(lines, ["line 5", "line 6", "line 7", "line 8"]);
        assert!(users.rights("t1", b"secret").is_some_and(|rights| !rights.are_all()));
        for (name, password) in
            [("t1", "secre"), ("t1", "secret "), ("t1", ""), ("t2", ""), ("", ""), ("t1", "secret\0")]
        {
            assert_eq!(users.rights(name, password.as_bytes()), None, "{name} {password}");
        }
        assert_eq!(users.rights("t1", &[b'x'; 1_000]), None);
        let rights = users.rights("app", b"pass").expect("a user");
        assert!(users.still("app", &rights) && !users.still("t1", &rights) && !users.still("gone", &rights));
    }
}
