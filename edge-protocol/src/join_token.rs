//! A join token as people carry it: `TOKEN.PLACE`, one word. TOKEN is `sampan1.AUTHORITY.SECRET`, or `sampan2.` for a claim
//! token; PLACE is base64url of the line `NODE BRIDGE BRIDGE...`. It is public and untrusted: a wrong address leads to a
//! server with another authority, which the node refuses.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// First part of a token for one node.
pub const NODE_SCHEME: &str = "sampan1";
/// First part of a claim token, with which many boards request certificates.
pub const CLAIM_SCHEME: &str = "sampan2";
/// Stands for NODE in the place of a claim token, because the bridge names each board. No node can have this name.
pub const NO_NODE: &str = "-";

/// Number of parts of TOKEN.
const PARTS: usize = 3;

/// The node and the bridges that a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub node: String,
    /// `https://HOST:PORT` of each.
    pub bridges: Vec<String>,
}

/// A place that does not decode, or lacks its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("join token: its end is damaged or cut off; copy all of it")]
pub struct DamagedPlace;

/// Appends the place to a token.
#[must_use]
pub fn with_place(token: &str, place: &Place) -> String {
    let words: Vec<&str> = std::iter::once(&place.node).chain(&place.bridges).map(String::as_str).collect();
    // The end of the line shows that nothing was cut off.
    format!("{token}.{}", URL_SAFE_NO_PAD.encode(words.join(" ") + "\n"))
}

/// Splits a text into token and place. Tokens of older bridges have no place.
///
/// # Errors
/// The place is damaged.
pub fn split(text: &str) -> Result<(&str, Option<Place>), DamagedPlace> {
    let text = text.trim();
    let Some((dot, _)) = text.match_indices('.').nth(PARTS - 1) else { return Ok((text, None)) };
    let bytes = URL_SAFE_NO_PAD.decode(&text[dot + 1..]).map_err(|_| DamagedPlace)?;
    let line = String::from_utf8(bytes).map_err(|_| DamagedPlace)?;
    let mut words = line.strip_suffix('\n').ok_or(DamagedPlace)?.split_whitespace().map(str::to_owned);
    let node = words.next().ok_or(DamagedPlace)?;
    Ok((&text[..dot], Some(Place { node, bridges: words.collect() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let bridges = ["https://bridge.example.com:7443", "https://[fd00::1]:7443"].map(str::to_owned).to_vec();
        Place { node: "edge-1".into(), bridges }
    }

    #[test]
    fn text_is_one_shell_word_and_splits_again() {
        let text = with_place("sampan1.0a0a.se-cret_", &place());
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)), "{text}");
        assert_eq!(split(&format!(" {text}\n")), Ok(("sampan1.0a0a.se-cret_", Some(place()))));
        let alone = Place { node: "n".into(), bridges: Vec::new() };
        assert_eq!(split(&with_place("a.b.c", &alone)), Ok(("a.b.c", Some(alone))));
    }

    #[test]
    fn token_without_a_place_is_left_as_it_is() {
        for text in ["sampan1.0a0a.secret", "sampan1.0a0a", "sampan1", ""] {
            assert_eq!(split(text), Ok((text, None)));
        }
    }

    #[test]
    fn text_that_was_cut_off_is_damaged() {
        let text = with_place("a.b.c", &place());
        for end in 6..text.len() {
            assert_eq!(split(&text[..end]), Err(DamagedPlace), "{}", &text[..end]);
        }
        assert_eq!(split("a.b.c.d.e"), Err(DamagedPlace));
    }
}
