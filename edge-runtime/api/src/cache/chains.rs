//! Lists that come in pages: kept when all pages have come, each as it came. No I/O.

use super::admit::{MAX_ANSWER, Next};
use super::answer::Page;
use crate::pods::Digest;

/// Lists at once that are incomplete. The oldest one goes, of the same ServiceAccount if it has one.
const MAX_CHAINS: usize = 4;

#[derive(Debug)]
struct Chain {
    key: Digest,
    account: String,
    pages: Vec<Page>,
    next: String,
}

#[derive(Debug, Default)]
pub(super) struct Chains(Vec<Chain>);

impl Chains {
    /// Adds a page. Returns all pages of its list, if this was the last one.
    pub(super) fn add(&mut self, key: Digest, account: &str, page: Page, next: Next) -> Option<Vec<Page>> {
        let known = self.0.iter().position(|chain| chain.key == key).map(|at| self.0.remove(at));
        let mut pages = match known {
            _ if page.token.is_empty() => Vec::new(),
            Some(chain) if chain.next == page.token => chain.pages,
            // A page again, or one of an earlier list.
            known => {
                self.0.extend(known);
                return None;
            }
        };
        pages.push(page);
        let size: usize = pages.iter().map(|page| page.body.len()).sum();
        match next {
            Next::End if size <= MAX_ANSWER => return Some(pages),
            Next::Page(next) if size <= MAX_ANSWER => {
                if self.0.len() >= MAX_CHAINS {
                    self.0.remove(self.0.iter().position(|chain| chain.account == account).unwrap_or_default());
                }
                self.0.push(Chain { key, account: account.to_owned(), pages, next });
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(token: &str, bytes: usize) -> Page {
        Page { token: token.into(), headers: Vec::new(), body: vec![0; bytes] }
    }

    fn tokens(pages: Option<Vec<Page>>) -> Option<Vec<String>> {
        pages.map(|pages| pages.into_iter().map(|page| page.token).collect())
    }

    #[test]
    fn list_is_whole_with_its_last_page() {
        let mut chains = Chains::default();
        let key = [1; 32];
        assert_eq!(tokens(chains.add(key, "a", page("", 1), Next::End)), Some(vec![String::new()]));
        assert_eq!(tokens(chains.add(key, "a", page("", 1), Next::Page("a".into()))), None);
        assert_eq!(tokens(chains.add([2; 32], "a", page("", 1), Next::Page("x".into()))), None);
        assert_eq!(tokens(chains.add(key, "a", page("b", 1), Next::End)), None, "a page of another list");
        assert_eq!(tokens(chains.add(key, "a", page("a", 1), Next::Page("b".into()))), None);
        let all = tokens(chains.add(key, "a", page("b", 1), Next::End));
        assert_eq!(all, Some(vec![String::new(), "a".into(), "b".into()]));
        assert_eq!(tokens(chains.add(key, "a", page("b", 1), Next::End)), None, "it is over");
    }

    #[test]
    fn first_page_begins_again() {
        let mut chains = Chains::default();
        chains.add([1; 32], "a", page("", 1), Next::Page("a".into()));
        chains.add([1; 32], "a", page("", 1), Next::Page("b".into()));
        assert_eq!(tokens(chains.add([1; 32], "a", page("a", 1), Next::End)), None);
        assert!(chains.add([1; 32], "a", page("b", 1), Next::End).is_some());
    }

    #[test]
    fn incomplete_lists_have_limits() {
        let mut chains = Chains::default();
        chains.add([1; 32], "a", page("", MAX_ANSWER), Next::Page("a".into()));
        assert_eq!(tokens(chains.add([1; 32], "a", page("a", 1), Next::End)), None, "too large");
        for key in 0..100 {
            chains.add([key; 32], "a", page("", 1), Next::Page("a".into()));
        }
        assert_eq!(chains.0.len(), MAX_CHAINS);
        chains.add([200; 32], "a", page("", 1), Next::Unknown);
        assert!(chains.0.iter().all(|chain| chain.key != [200; 32]));
    }

    #[test]
    fn account_with_many_incomplete_lists_loses_its_own() {
        let mut chains = Chains::default();
        chains.add([1; 32], "quiet", page("", 1), Next::Page("a".into()));
        for key in 2..100 {
            chains.add([key; 32], "loud", page("", 1), Next::Page("a".into()));
        }
        assert!(chains.add([1; 32], "quiet", page("a", 1), Next::End).is_some());
    }
}
