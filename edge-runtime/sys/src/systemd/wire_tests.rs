//! Messages that systemd 252 itself sent and accepted, and malformed ones.

use super::*;

pub(in super::super) fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.as_bytes();
    hex.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

pub(in super::super) const STARTED: &str = "6c020101250000000300000037000000050175000100000007017300180000006f72672e667265656465736b746f702e7379\
     7374656d6431000000000000000008016700016f0000200000002f6f72672f667265656465736b746f702f73797374656d64\
     312f6a6f622f313600";
pub(in super::super) const REMOVED: &str = "6c0401014d00000008000000a200000001016f00190000002f6f72672f667265656465736b746f702f73797374656d643100\
     00000000000002017300200000006f72672e667265656465736b746f702e73797374656d64312e4d616e6167657200000000\
     00000000030173000a0000004a6f6252656d6f76656400000000000007017300180000006f72672e667265656465736b746f\
     702e73797374656d643100000000000000000801670004756f73730000000000000010000000200000002f6f72672f667265\
     656465736b746f702f73797374656d64312f6a6f622f3136000000001100000073616d70616e2d706f64782e736c69636500\
     000004000000646f6e6500";
pub(in super::super) const EXISTS: &str = "6c030101460000000a00000067000000050175000200000004017300230000006f72672e667265656465736b746f702e7379\
     7374656d64312e556e6974457869737473000000000007017300180000006f72672e667265656465736b746f702e73797374\
     656d64310000000000000000080167000173000041000000556e69742073616d70616e2d706f64782e736c69636520776173\
     20616c7265616479206c6f61646564206f7220686173206120667261676d656e742066696c652e00";
pub(in super::super) const SET: &str = "6c020101000000000b00000029000000050175000300000007017300180000006f72672e667265656465736b746f702e7379\
     7374656d64310000000000000000";

#[test]
fn a_call_is_as_systemd_took_it() {
    let mut body = Writer::default();
    body.text("sampan-podx.slice");
    body.text("replace");
    body.properties(&[
        Property { name: "DefaultDependencies", value: Value::Flag(false) },
        Property { name: "MemoryMax", value: Value::Number(32 << 20) },
    ]);
    body.no_units();
    let taken = "6c01000170000000010000008e00000001016f00190000002f6f72672f667265656465736b746f702f73797374656d643100\
     00000000000002017300200000006f72672e667265656465736b746f702e73797374656d64312e4d616e6167657200000000\
     00000000030173001200000053746172745472616e7369656e74556e69740000000000000801670010737361287376296128\
     736128737629290000001100000073616d70616e2d706f64782e736c696365000000070000007265706c6163650040000000\
     1300000044656661756c74446570656e64656e63696573000162000000000000090000004d656d6f72794d61780001740000\
     00000000000000000002000000000000000000000000";
    assert_eq!(call(1, "StartTransientUnit", "ssa(sv)a(sa(sv))", &body), bytes(taken));
}

#[test]
fn texts_and_changes() {
    let mut body = Writer::default();
    body.text("sampan-podx.slice");
    body.flag(true);
    body.properties(&[Property { name: "CPUWeight", value: Value::Number(35) }]);
    let taken = "6c01000140000000030000008500000001016f00190000002f6f72672f667265656465736b746f702f73797374656d643100\
     00000000000002017300200000006f72672e667265656465736b746f702e73797374656d64312e4d616e6167657200000000\
     000000000301730011000000536574556e697450726f70657274696573000000000000000801670007736261287376290000\
     00001100000073616d70616e2d706f64782e736c696365000000010000002000000009000000435055576569676874000174\
     00000000000000002300000000000000";
    assert_eq!(call(3, "SetUnitProperties", "sba(sv)", &body), bytes(taken));
    let mut body = Writer::default();
    body.properties(&[Property { name: "Description", value: Value::Text("a pod".into()) }]);
    assert_eq!(body.0[4..8], [0; 4], "the first structure begins at a multiple of 8");
    assert_eq!(body.0.len(), 8 + usize::from(body.0[0]));
    assert!(body.0.ends_with(b"a pod\0"));
}

/// `ay`: its length is aligned to 4 bytes, and the bytes follow without a gap (D-Bus specification, "Marshaling").
#[test]
fn bytes_follow_their_length() {
    let mut body = Writer::default();
    body.properties(&[Property { name: "AllowedCPUs", value: Value::Bytes(vec![0b1101, 0, 1]) }]);
    let (name, signature) = (b"\x0b\0\0\0AllowedCPUs\0", b"\x02ay\0");
    let mut wanted = [&name[..], &signature[..]].concat();
    wanted.extend([3, 0, 0, 0, 0b1101, 0, 1]);
    assert_eq!(body.0[8..], wanted);
    assert_eq!(usize::from(body.0[0]), wanted.len());
}

#[test]
fn answers_are_understood() {
    let mut inbox = bytes(STARTED);
    inbox.extend(bytes(REMOVED));
    let started = take(&mut inbox).unwrap().unwrap();
    assert_eq!((started.kind, started.reply_to, started.signature.as_str()), (REPLY, 1, "o"));
    assert_eq!(Reader::of(&started).text().unwrap(), "/org/freedesktop/systemd1/job/16");
    let removed = take(&mut inbox).unwrap().unwrap();
    assert_eq!((removed.kind, removed.member.as_str(), removed.signature.as_str()), (SIGNAL, "JobRemoved", "uoss"));
    let mut reader = Reader::of(&removed);
    assert_eq!(reader.u32().unwrap(), 16);
    let texts = [(); 3].map(|()| reader.text().unwrap());
    assert_eq!(texts, ["/org/freedesktop/systemd1/job/16", "sampan-podx.slice", "done"]);
    let refused = take(&mut bytes(EXISTS)).unwrap().unwrap();
    assert_eq!((refused.kind, refused.reply_to), (ERROR, 2));
    assert_eq!(refused.error, "org.freedesktop.systemd1.UnitExists");
    assert!(Reader::of(&refused).text().unwrap().starts_with("Unit sampan-podx.slice was already loaded"));
    let set = take(&mut bytes(SET)).unwrap().unwrap();
    assert_eq!((set.kind, set.reply_to, set.body.len()), (REPLY, 3, 0));
    assert!(inbox.is_empty());
}

#[test]
fn a_message_may_come_in_pieces() {
    let whole = bytes(REMOVED);
    for end in 0..whole.len() {
        let mut part = whole[..end].to_vec();
        assert!(take(&mut part).unwrap().is_none(), "{end}");
        assert_eq!(part.len(), end);
    }
}

#[test]
fn garbage_is_refused() {
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = bytes(REMOVED);
        change(&mut message);
        assert!(matches!(take(&mut message), Err(BusError::Garbage(_))));
    };
    refused(&|message| message[0] = b'B');
    refused(&|message| message[3] = 2);
    refused(&|message| message[7] = 0x7f);
    refused(&|message| message[15] = 0x7f);
    // The first field's type, its text's length and end.
    refused(&|message| message[18] = b'x');
    refused(&|message| message[23] = 0x7f);
    refused(&|message| message[20] = 0x10);
    let removed = take(&mut bytes(REMOVED)).unwrap().unwrap();
    let cut = Message { body: removed.body[..9].to_vec(), ..removed };
    let mut reader = Reader::of(&cut);
    assert!(reader.u32().is_ok() && reader.text().is_err());
}

#[test]
fn no_byte_of_a_message_can_do_harm() {
    let whole = bytes(REMOVED);
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut message = whole.clone();
            message[at] = value;
            let taken = take(&mut message);
            assert!(value != whole[at] || matches!(taken, Ok(Some(_))), "byte {at} is as it was");
            if let Ok(Some(message)) = taken {
                let mut reader = Reader::of(&message);
                let _ = reader.u32();
                for text in [reader.text(), reader.text(), reader.text()].into_iter().flatten() {
                    assert!(text.len() < message.body.len(), "byte {at} as {value}: {text:?}");
                }
            }
        }
    }
}
