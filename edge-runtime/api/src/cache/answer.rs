//! What is kept of an answer, and as bytes of a file: eight bytes of version, SHA-256 of the rest, four bytes length of a
//! head as JSON, the head, and the bodies of all pages. A file with any other content counts as none.

use serde::{Deserialize, Serialize};

use crate::pods::{Digest, sha256};

const MAGIC: &[u8; 8] = b"edgeapi1";

/// The newest answer of one path for one ServiceAccount: one page, or all pages of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) account: String,
    /// When the API gave it, in milliseconds of the Unix epoch.
    pub(crate) read_ms: u64,
    pub(crate) pages: Vec<Page>,
}

/// One page, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Token by which it was asked for; empty for the first.
    pub(crate) token: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    account: String,
    read_ms: u64,
    pages: Vec<PageHead>,
}

#[derive(Serialize, Deserialize)]
struct PageHead {
    token: String,
    headers: Vec<(String, String)>,
    length: usize,
}

impl Answer {
    /// Bytes that it takes, about.
    pub(crate) fn size(&self) -> u64 {
        let page = |page: &Page| {
            let headers: usize = page.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
            page.token.len() + headers + page.body.len() + 64
        };
        u64::try_from(self.pages.iter().map(page).sum::<usize>() + 128).unwrap_or(u64::MAX)
    }

    /// Digest of the pages: the same until the API answers with anything else.
    pub(crate) fn digest(&self) -> Digest {
        let mut all = Vec::new();
        for page in &self.pages {
            let kind = page.headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value);
            all.extend_from_slice(&sha256(kind.as_bytes()));
            all.extend_from_slice(&sha256(&page.body));
        }
        sha256(&all)
    }

    pub(crate) fn page(&self, token: &str) -> Option<&Page> {
        self.pages.iter().find(|page| page.token == token)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = |page: &Page| PageHead {
            token: page.token.clone(),
            headers: page.headers.clone(),
            length: page.body.len(),
        };
        let pages = self.pages.iter().map(head).collect();
        let head = Head { account: self.account.clone(), read_ms: self.read_ms, pages };
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let mut rest = u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        rest.extend_from_slice(&head);
        for page in &self.pages {
            rest.extend_from_slice(&page.body);
        }
        let mut out = Vec::with_capacity(MAGIC.len() + 32 + rest.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&sha256(&rest));
        out.extend_from_slice(&rest);
        out
    }

    /// `None`: the bytes are damaged, or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (digest, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
        if sha256(rest) != *digest {
            return None;
        }
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (head, mut rest) = rest.split_at_checked(length)?;
        let head: Head = serde_json::from_slice(head).ok()?;
        let mut pages = Vec::with_capacity(head.pages.len());
        for PageHead { token, headers, length } in head.pages {
            let (body, after) = rest.split_at_checked(length)?;
            pages.push(Page { token, headers, body: body.to_vec() });
            rest = after;
        }
        let is_whole = rest.is_empty() && !pages.is_empty();
        is_whole.then_some(Self { account: head.account, read_ms: head.read_ms, pages })
    }
}

#[cfg(test)]
pub(super) fn example(account: &str, body: &[u8]) -> Answer {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Answer {
        account: account.to_owned(),
        read_ms: 7,
        pages: vec![Page { token: String::new(), headers, body: body.to_vec() }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_gives_back_the_answer() {
        let mut answer = example("ns/sa", b"{}");
        answer.pages.push(Page { token: "t".into(), headers: Vec::new(), body: vec![0, 255] });
        assert_eq!(Answer::decode(&answer.encode()), Some(answer.clone()));
        assert_eq!(answer.page("t").map(|page| page.body.len()), Some(2));
        assert_eq!(answer.page("u"), None);
    }

    #[test]
    fn damaged_file_is_none() {
        let bytes = example("ns/sa", b"{\"a\":1}").encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Answer::decode(&damaged), None, "byte {at}");
            assert_eq!(Answer::decode(&bytes[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn digest_is_of_the_content() {
        let answer = example("ns/sa", b"a");
        assert_eq!(answer.digest(), Answer { read_ms: 9, ..answer.clone() }.digest());
        assert_ne!(answer.digest(), example("ns/sa", b"b").digest());
    }
}
