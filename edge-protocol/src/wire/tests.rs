//! Binary frames: every byte survives, limits apply, and malformed input gets a clear error.

use super::*;
use proptest::prelude::*;

fn noise(bytes: usize) -> Vec<u8> {
    let mut seed = 1_u32;
    let next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn frame(stream: StreamId, data: &[u8]) -> Vec<u8> {
    match Frame::new(Content::Data { stream, data: data.to_vec() }, true).wire() {
        Wire::Binary(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_shrinking_data_is_sent_compressed() {
    for data in [noise(8 << 10), noise(MIN), b"$ ".to_vec(), Vec::new()] {
        let bytes = frame(7, &data);
        assert_eq!((bytes[0], bytes.len()), (PLAIN, data.len() + 2));
        assert_eq!(read(&bytes, true), Ok(Content::Data { stream: 7, data }));
    }
    let log: String = (0..100)
        .map(|n| {
            format!("2026-11-21T17:02:{:02}Z INFO line {} of press 17 done in {} ms\n", n % 60, n * 7, n * 31 % 97)
        })
        .collect();
    let data = log.into_bytes();
    let bytes = frame(300, &data);
    assert_eq!(bytes[0], DEFLATED);
    assert!(bytes.len() * 4 < data.len(), "{} bytes of {}", bytes.len(), data.len());
    let text = crate::frame::encode(&crate::message::ToCloud::StreamData { stream: 300, data: data.clone() });
    let before = compress::pack(&text).expect("is worth it").len();
    assert!(bytes.len() * 5 < before * 4, "{} bytes, {before} as text", bytes.len());
    assert_eq!(read(&bytes, true), Ok(Content::Data { stream: 300, data }));
}

#[test]
fn g20_a_bomb_in_a_stream_is_refused_at_the_limit() {
    let bomb = |size| [&[DEFLATED, 1][..], &miniz_oxide::deflate::compress_to_vec(&vec![0; size], 9)].concat();
    let fits = read(&bomb(MAX_FRAME), true).expect("fits");
    assert_eq!(fits, Content::Data { stream: 1, data: vec![0; MAX_FRAME] });
    for size in [MAX_FRAME + 1, 64 << 20] {
        assert!(matches!(read(&bomb(size), true), Err(UnpackError::TooLarge { .. })), "{size}");
    }
    let long = [&[PLAIN, 1][..], &vec![0; MAX_FRAME]].concat();
    assert_eq!(read(&long, true), Err(UnpackError::TooLarge { packed: MAX_FRAME + 2 }));
}

#[test]
fn nonsense_is_named() {
    assert_eq!(read(&[PLAIN, 1, 2], false), Err(UnpackError::NotAgreed));
    assert_eq!(read(&[DEFLATED, 1, 2], true), Err(UnpackError::Damaged));
    for nowhere in [&[PLAIN][..], &[PLAIN, 0x80], &[PLAIN, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0]] {
        assert_eq!(read(nowhere, true), Err(UnpackError::NoStream), "{nowhere:?}");
    }
    for kind in [0x0e, 0xff, 0x06 | 0x80] {
        assert_eq!(read(&[kind, 1, 2], true), Err(UnpackError::Damaged), "block type 3 of deflate is reserved");
    }
}

proptest! {
    #[test]
    fn any_bytes_of_any_stream_survive(stream: StreamId, data in proptest::collection::vec(any::<u8>(), 0..2000), times in 1usize..5) {
        let data = data.repeat(times);
        prop_assert_eq!(read(&frame(stream, &data), true), Ok(Content::Data { stream, data }));
    }

    #[test]
    fn g20_noise_is_never_more_than_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(Content::Data { data, .. }) = read(&bytes, true) {
            prop_assert!(data.len() <= MAX_FRAME);
        }
    }
}
