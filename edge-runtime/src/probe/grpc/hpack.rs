//! Reading HTTP/2 header blocks (HPACK, RFC 7541), as far as an answer to one gRPC call needs it.
//!
//! The peer must not use a dynamic table, so an index into it is an error. No I/O.

/// Code lengths of the symbols, in bits (RFC 7541, Appendix B). The code is canonical: codes of one length increase in
/// the order of their symbols, so the lengths suffice.
const CODE_BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26,
];
const LONGEST_CODE: u8 = 30;
/// Entries of the static table; of their names only `:status` (8 to 14) is of use here.
const STATIC_ENTRIES: usize = 61;
const STATUSES: [&str; 7] = ["200", "204", "206", "304", "400", "404", "500"];

/// Names and values of a whole block.
///
/// # Errors
/// It is malformed, or uses a dynamic table.
pub(super) fn headers(mut block: &[u8]) -> Result<Vec<(String, String)>, &'static str> {
    let mut all = Vec::new();
    while let Some(first) = block.first() {
        let prefix = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => {
                // A new size of the dynamic table.
                integer(&mut block, 5)?;
                continue;
            }
            _ => 4,
        };
        let index = integer(&mut block, prefix)?;
        if index > STATIC_ENTRIES {
            return Err("a header refers to a dynamic table");
        }
        let known = index.checked_sub(8).and_then(|at| STATUSES.get(at));
        let mut name = known.map_or_else(String::new, |_| ":status".to_owned());
        if prefix == 7 {
            all.push((name, known.copied().unwrap_or_default().to_owned()));
            continue;
        }
        if index == 0 {
            name = string(&mut block)?;
        }
        all.push((name, string(&mut block)?));
    }
    Ok(all)
}

fn take<'a>(block: &mut &'a [u8], count: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = block.split_at_checked(count).ok_or("a header block is cut off")?;
    *block = rest;
    Ok(taken)
}

fn integer(block: &mut &[u8], prefix: u8) -> Result<usize, &'static str> {
    let mask = (1u8 << prefix) - 1;
    let low = take(block, 1)?.iter().fold(0, |_, byte| byte & mask);
    let mut value = usize::from(low);
    if low < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14] {
        let byte = take(block, 1)?.iter().fold(0, |_, byte| *byte);
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a header is too long")
}

fn string(block: &mut &[u8]) -> Result<String, &'static str> {
    let coded = block.first().is_some_and(|byte| *byte >= 0x80);
    let length = integer(block, 7)?;
    let bytes = take(block, length)?;
    let text = if coded { decode(bytes)? } else { bytes.to_vec() };
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn decode(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::new();
    // The code so far, the first code of its length, and that length.
    let (mut code, mut first, mut bits) = (0u32, 0u32, 0u8);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| (byte >> at) & 1)) {
        first = (first + of_length(bits)) << 1;
        code = (code << 1) | u32::from(bit);
        bits += 1;
        if bits > LONGEST_CODE {
            return Err("a header has a code that does not exist");
        }
        if let Some(nth) = code.checked_sub(first).filter(|nth| *nth < of_length(bits)) {
            let mut symbols = (0u8..=255).zip(CODE_BITS).filter(|(_, length)| *length == bits);
            out.extend(symbols.nth(usize::try_from(nth).unwrap_or(usize::MAX)).map(|(symbol, _)| symbol));
            (code, first, bits) = (0, 0, 0);
        }
    }
    Ok(out)
}

/// Number of codes of this length, including the last one of all, which marks the end of a string and is not a byte.
fn of_length(bits: u8) -> u32 {
    CODE_BITS.iter().fold(0, |count, length| count + u32::from(*length == bits && bits > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
    }

    /// RFC 7541, C.6.1 up to its last field, with and without Huffman coding (C.5.1).
    #[test]
    fn the_examples_of_the_rfc() {
        for block in [
            "4803333032 5807707269 76617465 611d 4d6f6e2c203231204f637420323031332032303a31333a323120474d54",
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff",
        ] {
            let all = headers(&hex(block)).unwrap();
            assert_eq!(all[0], (":status".into(), "302".into()));
            assert_eq!(all[1].1, "private");
            assert_eq!(all[2].1, "Mon, 21 Oct 2013 20:13:21 GMT");
        }
        assert_eq!(headers(&hex("88")).unwrap(), [(":status".into(), "200".into())]);
    }

    #[test]
    fn nonsense_is_an_error() {
        for block in ["be", "40", "0085ff", "7fffffffff", "000180"] {
            assert!(headers(&hex(block)).is_err(), "{block}");
        }
        for byte in 0..=255u8 {
            let _ = headers(&[byte; 40]);
        }
    }
}
