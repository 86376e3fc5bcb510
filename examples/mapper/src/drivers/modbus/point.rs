//! Position of a property on a bus, and the meaning of its registers. Pure. Keys are those of KubeEdge's Modbus mapper
//! where it has one.
//!
//! | of a Device (`protocol.configData`) | default | |
//! |---|---|---|
//! | `address` | | `HOST:PORT` of Modbus TCP; or |
//! | `serialPort` | | `/dev/ttyUSB0`, `/dev/serial/by-id/…` |
//! | `baudRate`, `dataBits`, `parity`, `stopBits` | 9600, 8, `none`, 1 | of the serial line; parity is `none`, `even` or `odd` |
//! | `slaveID` | 1 | 1 to 247; on TCP 0 to 255 |
//! | `timeout` | 1000 | for an answer, milliseconds |
//!
//! | of a property (`visitors.configData`) | default | |
//! |---|---|---|
//! | `register` | | `CoilRegister`, `DiscreteInputRegister`, `InputRegister`, `HoldingRegister` |
//! | `offset` | | address of the first register as on the wire, from 0 |
//! | `dataType` | `uint16` | `int16`, `uint16`, `int32`, `uint32`, `float32`, `float64`; nothing for coils and discrete inputs |
//! | `limit` | as the type has | number of registers: refused if the type has another one |
//! | `isSwap`, `isRegisterSwap` | `false` | bytes in a register, and registers of a value, come in the other order |
//! | `scale` | 1 | what is read is multiplied by it |

use std::time::Duration;

use super::address::Address;
use crate::config_data::Config;
use crate::drivers::Access;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub(super) bus: Address,
    pub(super) slave: u8,
    pub(super) timeout: Duration,
    pub(super) register: Register,
    pub(super) offset: u16,
    /// Registers of the value.
    pub(super) words: u16,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    Coil,
    Discrete,
    Input,
    Holding,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Form {
    kind: DataType,
    swap_bytes: bool,
    swap_words: bool,
    scale: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataType {
    Int16,
    UInt16,
    Int32,
    UInt32,
    Float32,
    Float64,
}

impl DataType {
    const fn words(self) -> u16 {
        match self {
            Self::Int16 | Self::UInt16 => 1,
            Self::Int32 | Self::UInt32 | Self::Float32 => 2,
            Self::Float64 => 4,
        }
    }
}

/// Data on the bus for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Raw {
    Bit(bool),
    Words(Vec<u16>),
}

impl Register {
    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "coilregister" | "coil" => Ok(Self::Coil),
            "discreteinputregister" | "discrete" => Ok(Self::Discrete),
            "inputregister" | "input" => Ok(Self::Input),
            "holdingregister" | "holding" => Ok(Self::Holding),
            _ => Err(format!(
                "configData register {text:?} is not CoilRegister, DiscreteInputRegister, InputRegister or HoldingRegister"
            )),
        }
    }

    const fn is_bit(self) -> bool {
        matches!(self, Self::Coil | Self::Discrete)
    }
}

impl Form {
    fn parse(config: &Config) -> Result<Self, String> {
        let kind = match config.text("dataType").map(|kind| kind.to_ascii_lowercase()).as_deref() {
            None | Some("uint16") => DataType::UInt16,
            Some("int16") => DataType::Int16,
            Some("int32") => DataType::Int32,
            Some("uint32") => DataType::UInt32,
            Some("float32") => DataType::Float32,
            Some("float64") => DataType::Float64,
            Some(other) => {
                return Err(format!(
                    "configData dataType {other:?} is not int16, uint16, int32, uint32, float32 or float64"
                ));
            }
        };
        let scale = config.number("scale")?.unwrap_or(1.0);
        if scale == 0.0 {
            return Err("configData scale is 0".to_owned());
        }
        let (swap_bytes, swap_words) = (config.flag("isSwap")?, config.flag("isRegisterSwap")?);
        Ok(Self { kind, swap_bytes, swap_words, scale })
    }

    /// The order of the bus, high byte and high register first, and back: it is its own inverse.
    fn order(self, words: &[u16]) -> Vec<u16> {
        let swapped = words.iter().map(|word| if self.swap_bytes { word.swap_bytes() } else { *word });
        if self.swap_words { swapped.rev().collect() } else { swapped.collect() }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the registers that a wide number is cut into")]
fn cut(bits: u64, words: u16) -> Vec<u16> {
    (0..words).rev().map(|word| (bits >> (16 * u32::from(word))) as u16).collect()
}

impl Point {
    pub(super) fn parse(config: &Config, access: Access) -> Result<Self, String> {
        let register = Register::parse(&config.text("register").ok_or("configData register is missing")?)?;
        if access == Access::ReadWrite && matches!(register, Register::Discrete | Register::Input) {
            return Err("the property is ReadWrite, and its register can only be read".to_owned());
        }
        let offset = config.whole("offset", 0..=65_535)?.ok_or("configData offset is missing")?;
        let offset = u16::try_from(offset).map_err(|error| error.to_string())?;
        let form = Form::parse(config)?;
        let words = if register.is_bit() { 1 } else { form.kind.words() };
        if config.whole("limit", 1..=125)?.is_some_and(|limit| limit != u32::from(words)) {
            return Err(format!("configData limit differs from the registers that the dataType has, {words}"));
        }
        if offset.checked_add(words - 1).is_none() {
            return Err("configData offset leaves no room for the dataType".to_owned());
        }
        let bus = Address::parse(config)?;
        let slaves = if matches!(bus, Address::Tcp(_)) { 0..=255 } else { 1..=247 };
        let slave = config.whole("slaveID", slaves)?.and_then(|slave| slave.try_into().ok()).unwrap_or(1);
        let timeout = config.whole("timeout", 10..=10_000)?.unwrap_or(1_000);
        let timeout = Duration::from_millis(timeout.into());
        Ok(Self { bus, slave, timeout, register, offset, words, form })
    }

    /// # Errors
    /// The registers hold no number, as floats do that were never measured.
    #[expect(clippy::cast_possible_truncation, reason = "the sign of a number in as many bits as it has")]
    #[expect(clippy::cast_possible_wrap, reason = "the sign of a number in as many bits as it has")]
    #[expect(clippy::cast_precision_loss, reason = "32 bits at most")]
    pub(super) fn decode(&self, raw: &Raw) -> Result<Value, String> {
        let words = match raw {
            Raw::Bit(bit) => return Ok(Value::Flag(*bit)),
            Raw::Words(words) if words.len() == usize::from(self.words) => self.form.order(words),
            Raw::Words(_) => return Err("the answer has another number of registers".to_owned()),
        };
        let bits = words.iter().fold(0, |bits: u64, word| (bits << 16) | u64::from(*word));
        let whole = match self.form.kind {
            DataType::Int16 => i64::from(bits as u16 as i16),
            DataType::Int32 => i64::from(bits as u32 as i32),
            DataType::UInt16 | DataType::UInt32 => bits as i64,
            DataType::Float32 => return self.scaled(f32::from_bits(bits as u32).into()),
            DataType::Float64 => return self.scaled(f64::from_bits(bits)),
        };
        if self.form.scale == 1.0 { Ok(Value::Whole(whole)) } else { self.scaled(whole as f64) }
    }

    fn scaled(&self, number: f64) -> Result<Value, String> {
        let number = number * self.form.scale;
        if number.is_finite() { Ok(Value::Number(number)) } else { Err("the registers hold no number".to_owned()) }
    }

    /// # Errors
    /// The registers cannot hold the value.
    #[expect(clippy::cast_possible_truncation, reason = "within the range of the type, which is checked before")]
    #[expect(
        clippy::cast_precision_loss,
        reason = "what does not fit exactly is out of every range, or rounded by the type"
    )]
    #[expect(clippy::cast_sign_loss, reason = "the bits of a negative number")]
    pub(super) fn encode(&self, value: &Value) -> Result<Raw, String> {
        if self.register.is_bit() {
            return match value {
                Value::Flag(bit) => Ok(Raw::Bit(*bit)),
                Value::Whole(0) => Ok(Raw::Bit(false)),
                Value::Whole(1) => Ok(Raw::Bit(true)),
                _ => Err("a coil is on or off, 1 or 0".to_owned()),
            };
        }
        let number = match value {
            Value::Flag(flag) => f64::from(u8::from(*flag)),
            Value::Whole(number) => *number as f64,
            Value::Number(number) => *number,
        };
        let raw = number / self.form.scale;
        let (least, greatest) = match self.form.kind {
            DataType::Int16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
            DataType::UInt16 => (0.0, f64::from(u16::MAX)),
            DataType::Int32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
            DataType::UInt32 => (0.0, f64::from(u32::MAX)),
            DataType::Float32 => (f64::from(f32::MIN), f64::from(f32::MAX)),
            DataType::Float64 => (f64::MIN, f64::MAX),
        };
        let bits = match self.form.kind {
            DataType::Float32 if (least..=greatest).contains(&raw) => u64::from((raw as f32).to_bits()),
            DataType::Float64 if (least..=greatest).contains(&raw) => raw.to_bits(),
            DataType::Float32 | DataType::Float64 => return Err(format!("{number} does not fit the registers")),
            _ => {
                let raw = raw.round();
                if !(least..=greatest).contains(&raw) {
                    return Err(format!("{number} does not fit the registers"));
                }
                raw as i64 as u64
            }
        };
        Ok(Raw::Words(self.form.order(&cut(bits, self.words))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config_data::Datum;
    use crate::config_data::tests::{config, text};

    fn point(entries: &[(&str, Datum)]) -> Result<Point, String> {
        let mut all = vec![
            ("address", text("127.0.0.1:502")),
            ("register", text("HoldingRegister")),
            ("offset", Datum::Number(0.0)),
        ];
        all.extend_from_slice(entries);
        Point::parse(&config(&all), Access::ReadWrite)
    }

    fn of(kind: &str, swap: (bool, bool), scale: f64) -> Point {
        point(&[
            ("dataType", text(kind)),
            ("isSwap", Datum::Flag(swap.0)),
            ("isRegisterSwap", Datum::Flag(swap.1)),
            ("scale", Datum::Number(scale)),
        ])
        .expect("a point")
    }

    #[test]
    fn registers_are_read_in_any_order() {
        // 123456.0 as IEEE 754: 0x47F12000.
        for (kind, swap, words, value) in [
            ("float32", (false, false), vec![0x47f1, 0x2000], Value::Number(123_456.0)),
            ("float32", (false, true), vec![0x2000, 0x47f1], Value::Number(123_456.0)),
            ("float32", (true, false), vec![0xf147, 0x0020], Value::Number(123_456.0)),
            ("float32", (true, true), vec![0x0020, 0xf147], Value::Number(123_456.0)),
            ("int16", (false, false), vec![0xffff], Value::Whole(-1)),
            ("uint16", (false, false), vec![0xffff], Value::Whole(65_535)),
            ("int32", (false, false), vec![0xffff, 0xfffe], Value::Whole(-2)),
            ("uint32", (false, true), vec![1, 0xffff], Value::Whole(4_294_901_761)),
            ("float64", (false, false), vec![0x3ff8, 0, 0, 0], Value::Number(1.5)),
        ] {
            let point = of(kind, swap, 1.0);
            let raw = Raw::Words(words);
            assert_eq!(point.decode(&raw), Ok(value), "{kind} {swap:?}");
            assert_eq!(point.encode(&value), Ok(raw), "{kind} {swap:?}");
        }
    }

    #[test]
    fn values_are_scaled_and_rounded() {
        let point = of("int16", (false, false), 0.1);
        assert_eq!(point.decode(&Raw::Words(vec![215])), Ok(Value::Number(21.5)));
        assert_eq!(point.encode(&Value::Number(21.57)), Ok(Raw::Words(vec![216])));
        assert_eq!(point.encode(&Value::Whole(-1)), Ok(Raw::Words(vec![0xfff6])));
        for too_much in [Value::Number(3_276.8), Value::Whole(i64::MAX), Value::Number(-1.0e30)] {
            assert!(point.encode(&too_much).is_err(), "{too_much:?}");
        }
        assert!(of("uint16", (false, false), 1.0).encode(&Value::Whole(-1)).is_err());
        assert!(of("float32", (false, false), 1.0).encode(&Value::Number(1.0e39)).is_err());
        let nan = Raw::Words(vec![0x7fc0, 0]);
        assert_eq!(of("float32", (false, false), 1.0).decode(&nan), Err("the registers hold no number".into()));
    }

    #[test]
    fn coils_are_on_or_off() {
        let coil = point(&[("register", text("CoilRegister"))]).expect("a coil");
        for (value, raw) in [(Value::Flag(true), Ok(Raw::Bit(true))), (Value::Whole(0), Ok(Raw::Bit(false)))] {
            assert_eq!(coil.encode(&value), raw);
        }
        assert!(coil.encode(&Value::Whole(2)).is_err());
        assert_eq!(coil.decode(&Raw::Bit(true)), Ok(Value::Flag(true)));
        assert!(coil.decode(&Raw::Words(vec![])).is_err());
    }

    #[test]
    fn wrong_key_is_named() {
        for (entries, why) in [
            (&[("register", text("Holding Register"))][..], "register"),
            (&[("offset", Datum::Number(65_536.0))], "offset"),
            (&[("offset", Datum::Number(65_535.0)), ("dataType", text("int32"))], "offset"),
            (&[("dataType", text("int8"))], "dataType"),
            (&[("dataType", text("int32")), ("limit", Datum::Number(1.0))], "limit"),
            (&[("scale", Datum::Number(0.0))], "scale"),
            (&[("slaveID", Datum::Number(256.0))], "slaveID"),
            (&[("timeout", Datum::Number(1.0))], "timeout"),
            (&[("address", text("127.0.0.1"))], "address"),
            (&[("address", text(":502"))], "address"),
            (&[("serialPort", text("/dev/ttyS0"))], "address and serialPort"),
            (&[("address", text("")), ("serialPort", text("/etc/passwd"))], "serialPort"),
            (&[("address", text("")), ("serialPort", text("/dev/../etc/passwd"))], "serialPort"),
            (&[("address", text("")), ("serialPort", text("/dev/ttyS0")), ("parity", text("mark"))], "parity"),
            (&[("address", text("")), ("serialPort", text("/dev/ttyS0")), ("slaveID", Datum::Number(0.0))], "slaveID"),
            (&[("register", text("InputRegister"))], "only be read"),
        ] {
            let error = point(entries).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    proptest! {
        #[test]
        fn written_value_is_read_back(number in any::<i32>(), bytes in any::<bool>(), words in any::<bool>()) {
            let point = of("int32", (bytes, words), 1.0);
            let raw = point.encode(&Value::Whole(number.into())).expect("it fits");
            prop_assert_eq!(point.decode(&raw), Ok(Value::Whole(number.into())));
        }

        #[test]
        fn no_words_end_it(words in proptest::collection::vec(any::<u16>(), 0..6), kind in 0..6_usize, scale in any::<f64>()) {
            let kind = ["int16", "uint16", "int32", "uint32", "float32", "float64"][kind];
            if let Ok(point) = point(&[("dataType", text(kind)), ("scale", Datum::Number(scale))]) {
                let fits = words.len() == usize::from(point.words);
                if let Ok(value) = point.decode(&Raw::Words(words)) {
                    prop_assert!(fits && !matches!(value, Value::Number(number) if !number.is_finite()), "{value:?}");
                    let _ = point.encode(&value);
                }
            }
        }
    }
}
