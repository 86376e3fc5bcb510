//! The words of a rule in contiguous memory, so that scanning thousands of them is fast.

/// A list of words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Words {
    text: Box<str>,
    /// Where each ends.
    ends: Box<[u32]>,
}

impl Words {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let end = *end as usize;
            let word = self.text.get(start..end).unwrap_or_default();
            start = end;
            word
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether it has this word or the one for all.
    pub(super) fn has(&self, word: &str) -> bool {
        self.iter().any(|one| one == "*" || one == word)
    }
}

impl<'a> FromIterator<&'a str> for Words {
    /// Words beyond four gigabytes are left out: no body is that large.
    fn from_iter<I: IntoIterator<Item = &'a str>>(words: I) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for word in words {
            let Ok(end) = u32::try_from(text.len().saturating_add(word.len())) else { break };
            text.push_str(word);
            ends.push(end);
        }
        Self { text: text.into(), ends: ends.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_were() {
        let given = ["", "a", "", "ä*", "*", "bc"];
        let words: Words = given.into_iter().collect();
        assert_eq!(words.iter().collect::<Vec<_>>(), given);
        assert!(words.has("whatever") && words.len() == 6 && !words.is_empty());
        let words: Words = ["ab", "c"].into_iter().collect();
        assert!(words.has("ab") && words.has("c") && !words.has("abc") && !words.has("") && !words.has("b"));
        assert!(Words::default().is_empty() && !Words::default().has(""));
    }
}
