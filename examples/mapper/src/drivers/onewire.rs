//! Thermometers on a 1-wire bus, as the kernel shows them below `/sys/bus/w1/devices`: DS18B20 and its relatives.
//!
//! | configData | |
//! |---|---|
//! | `id` | name of the thermometer's folder, `28-0316a2795dff` |

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Access, Driver, Fault};
use crate::config_data::Config;
use crate::value::Value;

/// Timeout for a temperature from the kernel. The kernel requests the conversion, which takes 750 ms, and waits for
/// others on the bus.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that are looked at of what the kernel shows.
const LONGEST: u64 = 1_024;

/// A thermometer, by the name of its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    id: String,
}

#[derive(Debug)]
pub struct OneWire {
    /// `/sys/bus/w1/devices`, or where a test has made one.
    root: PathBuf,
    /// Thermometers that are being read: a hung bus holds one thread for each, and no more.
    busy: Rc<RefCell<BTreeSet<String>>>,
}

impl OneWire {
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root, busy: Rc::default() }
    }
}

impl Driver for OneWire {
    const PROTOCOL: &'static str = "onewire";
    const KEEPS: bool = true;
    type Point = Point;

    fn point(config: &Config, access: Access) -> Result<Point, String> {
        if access == Access::ReadWrite {
            return Err("a thermometer is ReadOnly".to_owned());
        }
        let id = config.text("id").ok_or("configData id is missing: the thermometer's folder, as 28-0316a2795dff")?;
        if is_id(&id) {
            Ok(Point { id })
        } else {
            Err(format!("configData id {id:?} is no thermometer, as 28-0316a2795dff"))
        }
    }

    fn fits(_: &Point, _: &Value) -> Result<(), String> {
        Err("a thermometer cannot be written".to_owned())
    }

    fn is_same(_: &Point, held: &Value, wanted: &Value) -> bool {
        held == wanted
    }

    async fn read(&self, point: &Point) -> Result<Value, Fault> {
        if !self.busy.borrow_mut().insert(point.id.clone()) {
            return Err(Fault::Silent("the bus hangs".to_owned()));
        }
        let folder = self.root.join(&point.id);
        let reading = spawn_blocking(move || read(&folder));
        let (busy, id) = (Rc::clone(&self.busy), point.id.clone());
        // Continues when the caller is gone: a thread in the kernel cannot be cancelled.
        let reading = tokio::task::spawn_local(async move {
            let read = reading.await;
            busy.borrow_mut().remove(&id);
            read
        });
        match timeout(PATIENCE, reading).await {
            Ok(Ok(Ok(read))) => read,
            Ok(_) => Err(Fault::Silent("the read was given up".to_owned())),
            Err(_) => Err(Fault::Silent(format!("no temperature within {} s", PATIENCE.as_secs()))),
        }
    }

    async fn write(&self, _: &Point, _: &Value) -> Result<(), Fault> {
        Err(Fault::Refused("a thermometer cannot be written".to_owned()))
    }

    fn retain(&self, _: &[&Point]) {}
}

/// Family and serial number as the kernel writes them: never a way out of the folder.
fn is_id(id: &str) -> bool {
    let hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Families of w1_therm: DS18S20, DS1822, DS18B20, DS1825, DS28EA00.
    id.split_once('-')
        .is_some_and(|(family, serial)| ["10", "22", "28", "3b", "42"].contains(&family) && hex(serial, 12))
}

fn read(folder: &Path) -> Result<Value, Fault> {
    let text = |name: &str| {
        let mut text = String::new();
        let file = std::fs::File::open(folder.join(name))?;
        file.take(LONGEST).read_to_string(&mut text).map(|_| text)
    };
    // It shows the bytes and their check; `temperature` of newer kernels shows only the number.
    match text("w1_slave") {
        Ok(text) => scratchpad(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match text("temperature") {
            Ok(text) => millidegrees(text.trim()),
            Err(error) => Err(silent(folder, &error)),
        },
        Err(error) => Err(silent(folder, &error)),
    }
}

fn silent(folder: &Path, error: &std::io::Error) -> Fault {
    Fault::Silent(format!("{}: {error}", folder.display()))
}

/// Two lines of `w1_slave`: the nine bytes with what the kernel thinks of their check, and once more with `t=`.
fn scratchpad(text: &str) -> Result<Value, Fault> {
    let wrong = |why: &str| {
        log::debug!("{why}: {:?}", text.chars().take(120).collect::<String>());
        Fault::Silent(why.to_owned())
    };
    let (first, second) = text.trim().split_once('\n').ok_or_else(|| wrong("not two lines"))?;
    let bytes: Option<Vec<u8>> =
        first.split_ascii_whitespace().take(9).map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let bytes: [u8; 9] = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| wrong("not nine bytes"))?;
    if !first.trim_end().ends_with("YES") || crc(&bytes) != 0 {
        return Err(wrong("the check of the bytes fails"));
    }
    // A line that is pulled to ground reads as zeros, whose checksum is zero as well.
    if bytes == [0; 9] {
        return Err(wrong("the line is short-circuited"));
    }
    // The value before the first conversion: it lost power in between (DS18B20, "Memory"; byte 6 is 0x0C then).
    let [low, high, _, _, _, _, reserved, ..] = bytes;
    if (low, high, reserved) == (0x50, 0x05, 0x0c) {
        return Err(wrong("the thermometer has lost power and shows 85 degrees"));
    }
    let number = second.rsplit_once("t=").ok_or_else(|| wrong("no temperature"))?;
    millidegrees(number.1.trim())
}

fn millidegrees(text: &str) -> Result<Value, Fault> {
    let number: i32 = text.parse().map_err(|_| Fault::Silent("what the kernel shows is no temperature".to_owned()))?;
    Ok(Value::Number(f64::from(number) / 1_000.0))
}

/// X⁸ + X⁵ + X⁴ + 1, zero over bytes with their check: Maxim's application note 27.
fn crc(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc: u8, _| if crc & 1 == 1 { (crc >> 1) ^ 0x8c } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config_data::tests::{config, text};

    const GOOD: &str = "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n";

    #[test]
    fn a_temperature_is_read_where_the_check_holds() {
        assert_eq!(scratchpad(GOOD), Ok(Value::Number(23.125)));
        let negative = "5e ff 4b 46 7f ff 02 10 b4 : crc=b4 YES\n5e ff 4b 46 7f ff 02 10 b4 t=-10125\n";
        let bytes = [0x5e, 0xff, 0x4b, 0x46, 0x7f, 0xff, 0x02, 0x10];
        let negative = negative.replace("b4", &format!("{:02x}", crc(&bytes)));
        assert_eq!(scratchpad(&negative), Ok(Value::Number(-10.125)));
    }

    #[test]
    fn implausible_readings_are_refused() {
        let power_on = [0x50, 0x05, 0x4b, 0x46, 0x7f, 0xff, 0x0c, 0x10];
        let check = format!("{:02x}", crc(&power_on));
        assert_eq!(check, "1c", "as in the kernel's own example");
        for text in [
            "",
            "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES",
            "72 01 4b 46 7f ff 0e 10 57 : crc=58 NO\n72 01 4b 46 7f ff 0e 10 57 t=23125\n",
            // The kernel reports YES, but the bytes are wrong.
            "73 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n73 01 4b 46 7f ff 0e 10 57 t=23125\n",
            "00 00 00 00 00 00 00 00 00 : crc=00 YES\n00 00 00 00 00 00 00 00 00 t=0\n",
            "50 05 4b 46 7f ff 0c 10 1c : crc=1c YES\n50 05 4b 46 7f ff 0c 10 1c t=85000\n",
            "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57\n",
            "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=warm\n",
        ] {
            assert!(matches!(scratchpad(text), Err(Fault::Silent(_))), "{text}");
        }
    }

    #[test]
    fn id_cannot_be_a_path() {
        let point = |id: &str| OneWire::point(&config(&[("id", text(id))]), Access::ReadOnly);
        assert_eq!(point("28-0316a2795dff"), Ok(Point { id: "28-0316a2795dff".into() }));
        for id in
            ["", "28", "28-", "28-0316a2795df", "28-0316a2795d/f", "../../etc", "28-../../etc/pw", "00-0316a2795dff"]
        {
            assert!(point(id).is_err(), "{id}");
        }
        assert!(OneWire::point(&config(&[("id", text("28-0316a2795dff"))]), Access::ReadWrite).is_err());
    }

    #[test]
    fn the_folder_of_either_kernel_is_read() {
        let root = tempfile::tempdir().expect("temp dir");
        let folder = root.path().join("28-0316a2795dff");
        assert!(matches!(read(&folder), Err(Fault::Silent(why)) if why.contains("28-0316a2795dff")));
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("temperature"), "21562\n").expect("a file");
        assert_eq!(read(&folder), Ok(Value::Number(21.562)));
        std::fs::write(folder.join("w1_slave"), GOOD).expect("a file");
        assert_eq!(read(&folder), Ok(Value::Number(23.125)));
    }

    proptest! {
        #[test]
        fn no_text_ends_it(text in "(.|\n){0,200}") {
            prop_assert!(matches!(scratchpad(&text), Err(Fault::Silent(_))));
        }

        #[test]
        fn reading_with_a_wrong_check_is_refused(bytes in any::<[u8; 8]>(), wrong in 1_u8.., text in ".{0,40}") {
            let shown: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
            let check = crc(&bytes) ^ wrong;
            let lines = format!("{shown}{check:02x} : crc={check:02x} YES\n{shown}{check:02x} t={text}\n");
            prop_assert!(matches!(scratchpad(&lines), Err(Fault::Silent(_))));
        }

        #[test]
        fn single_bit_error_is_found(bytes in any::<[u8; 8]>(), bit in 0..72_usize) {
            let mut all = bytes.to_vec();
            all.push(crc(&bytes));
            prop_assert_eq!(crc(&all), 0);
            all[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(crc(&all), 0);
        }
    }
}
