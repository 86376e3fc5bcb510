//! Untrusted names of layer entries: splits them, and refuses those that climb. Pure.

use crate::image::ImageError;

/// Longer paths than the kernel takes are of no use.
const LONGEST_PATH: usize = 4096;
/// Folders in folders; the deepest of honest images have some sixty.
const MOST_PARTS: usize = 256;

/// Meaning of an entry's name (OCI image-spec, "Layer Filesystem Changeset").
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// The root of the layer itself.
    Root,
    Entry {
        parent: Vec<&'a [u8]>,
        name: &'a [u8],
    },
    /// `.wh.NAME`: NAME of the layers below is gone.
    Whiteout {
        parent: Vec<&'a [u8]>,
        name: &'a [u8],
    },
    /// `.wh..wh..opq`: nothing of the layers below shows in `dir`.
    Opaque {
        dir: Vec<&'a [u8]>,
    },
    /// Other `.wh..wh.` names: notes of aufs to itself.
    Ignored,
}

/// Splits a path. Leading slashes and `.` mean nothing, as in every tar.
///
/// # Errors
/// A part is `..`, the path is too long, or holds a zero byte.
pub(super) fn split(path: &[u8]) -> Result<Vec<&[u8]>, ImageError> {
    let fail = |why: &str| Err(ImageError::Entry { entry: show(path), why: why.to_owned() });
    if path.len() > LONGEST_PATH {
        return fail("its path is longer than 4096 bytes");
    }
    if path.contains(&0) {
        return fail("its path has a zero byte");
    }
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    if parts.len() > MOST_PARTS {
        return fail("its path has more than 256 folders");
    }
    if parts.iter().any(|p| *p == b"..") {
        return fail("its path climbs with \"..\"; a layer must stay below its root");
    }
    Ok(parts)
}

/// What the entry `path` asks for.
///
/// # Errors
/// Same as [`split`], or a whiteout without a name.
pub(super) fn place(path: &[u8]) -> Result<Place<'_>, ImageError> {
    let mut parent = split(path)?;
    let Some(name) = parent.pop() else { return Ok(Place::Root) };
    let Some(hidden) = name.strip_prefix(b".wh.") else { return Ok(Place::Entry { parent, name }) };
    match hidden {
        b".wh..opq" => Ok(Place::Opaque { dir: parent }),
        meta if meta.starts_with(b".wh.") => Ok(Place::Ignored),
        b"" | b"." | b".." => {
            Err(ImageError::Entry { entry: show(path), why: "a whiteout must name what it hides".to_owned() })
        }
        hidden => Ok(Place::Whiteout { parent, name: hidden }),
    }
}

/// A path for people.
pub(super) fn show(path: &[u8]) -> String {
    let shown = &path[..path.len().min(200)];
    String::from_utf8_lossy(shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_places() {
        let usr: Vec<&[u8]> = vec![b"usr"];
        assert_eq!(place(b"./").unwrap(), Place::Root);
        assert_eq!(place(b"/usr//bin/").unwrap(), Place::Entry { parent: usr.clone(), name: b"bin" });
        assert_eq!(place(b"./usr/.wh.bin").unwrap(), Place::Whiteout { parent: usr.clone(), name: b"bin" });
        assert_eq!(place(b"usr/.wh..wh..opq").unwrap(), Place::Opaque { dir: usr });
        assert_eq!(place(b".wh..wh.plnk").unwrap(), Place::Ignored);
        assert_eq!(place(b"...").unwrap(), Place::Entry { parent: vec![], name: b"..." });
    }

    #[test]
    fn climbing_names_are_refused() {
        for bad in [
            &b"../etc"[..],
            b"a/../../b",
            b"..",
            b"/..",
            b"a\0b",
            b".wh.",
            b"a/.wh...",
            &[b'a'; 5000],
            &b"a/".repeat(257),
        ] {
            assert!(place(bad).is_err(), "{}", show(bad));
        }
        assert!(place(&b"a/".repeat(256)).is_ok());
        assert!(place(b"a/../b").unwrap_err().to_string().contains(r#""a/../b""#));
    }

    proptest::proptest! {
        #[test]
        fn no_place_climbs(path in proptest::collection::vec(proptest::sample::select(&b"./a\0wh"[..]), 0..24)) {
            if let Ok(Place::Entry { parent, name } | Place::Whiteout { parent, name }) = place(&path) {
                for part in parent.iter().chain([&name]) {
                    proptest::prop_assert!(!part.is_empty() && *part != b".." && *part != b"." && !part.contains(&b'/'));
                }
            }
        }
    }
}
