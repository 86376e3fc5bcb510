//! Names composed of an object's name and a suffix, which must not exceed a length. Pure.

use std::borrow::Cow;

/// Longest name of an object (RFC 1123 subdomain), in bytes.
const LONGEST: usize = 253;

/// Hex digits of the hash in a shortened name, with the dash before them.
const HASH: usize = 9;

/// A name of at most `max` bytes (at least 16): a longer one is cut, and ends in a hash of the whole.
#[must_use]
pub fn shorten(name: &str, max: usize) -> Cow<'_, str> {
    if name.len() <= max {
        return Cow::Borrowed(name);
    }
    let begin = name.get(..name.floor_char_boundary(max.saturating_sub(HASH))).unwrap_or_default();
    // A part of a domain name ends in a letter or digit.
    let begin = begin.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    Cow::Owned(format!("{begin}-{:08x}", fnv1a(name)))
}

/// The name of an event about an object: `OBJECT.UNIQUE`, as client-go makes it (K8s tools/record `GenerateEventName`, which
/// shortens since 1.34).
#[must_use]
pub fn event_name(object: &str, unique: &str) -> String {
    format!("{}.{unique}", shorten(object, LONGEST.saturating_sub(unique.len() + 1)))
}

/// FNV-1a of 32 bits: the same in every version and on every machine.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_cut_and_hashed() {
        assert_eq!(shorten("web-1", 16), "web-1");
        let (a, b) = (format!("{}-a", "long.".repeat(50)), format!("{}-b", "long.".repeat(50)));
        let short = shorten(&a, 60);
        assert!(short.len() <= 60 && short.starts_with("long.long") && !short.contains(".-"), "{short}");
        assert_ne!(short, shorten(&b, 60));
        assert_eq!(shorten(&a, 60), short, "the same each time");
        assert_eq!(fnv1a("a"), 0xe40c_292c, "FNV-1a, draft-eastlake-fnv");
    }

    #[test]
    fn event_name_fits_for_every_object_name() {
        let unique = "18a1b2c3d4e5f6a7deadbeef";
        assert_eq!(event_name("web", "1f"), "web.1f");
        for length in [200, 228, 229, 253] {
            let name = event_name(&"a".repeat(length), unique);
            assert!(name.len() <= LONGEST && name.ends_with(unique), "{length}: {name}");
        }
        assert_eq!(event_name(&"a".repeat(228), unique).len(), LONGEST);
    }
}
