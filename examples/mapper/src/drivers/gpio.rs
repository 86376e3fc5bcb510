//! Lines of a GPIO character device (`GPIO_V2`, Linux 5.10). A line is held from the first read or write until no
//! device uses it: only then does it certainly keep its level, on most chips.
//!
//! | configData | |
//! |---|---|
//! | `line` | number of the line on the chip, or its name (`GPIO17`) |
//! | `chip` | `/dev/gpiochip0` (also `gpiochip0`); without one the line is found by its name |
//! | `activeLow` | `true`: a low level is ON |
//! | `bias` | of inputs: `pull-up`, `pull-down`, `disabled` |
//!
//! Properties that are ReadWrite are outputs, which stay as they are until a value is desired; others are inputs.

use std::cell::RefCell;
use std::path::PathBuf;

use gpiocdev::line::{Bias, Value as Level};
use gpiocdev::request::{Config as Lines, Request};

use super::{Access, Driver, Fault};
use crate::config_data::Config;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    chip: Option<PathBuf>,
    line: Line,
    active_low: bool,
    bias: Option<Bias>,
    is_output: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Number(u32),
    Named(String),
}

#[derive(Debug, Default)]
pub struct Gpio {
    held: RefCell<Vec<Held>>,
}

#[derive(Debug)]
struct Held {
    point: Point,
    chip: PathBuf,
    number: u32,
    request: Request,
}

impl Driver for Gpio {
    const PROTOCOL: &'static str = "gpio";
    const KEEPS: bool = false;
    type Point = Point;

    fn point(config: &Config, access: Access) -> Result<Point, String> {
        let line = config.text("line").ok_or("configData line is missing: a number, or a name as GPIO17")?;
        let line = match config.number("line") {
            Ok(_) => Line::Number(config.whole("line", 0..=4_095)?.unwrap_or_default()),
            // The kernel's names have 32 bytes.
            Err(_) if line.len() < 32 => Line::Named(line),
            Err(_) => return Err("configData line is longer than a name of a line".to_owned()),
        };
        let chip = config.text("chip").map(|chip| chip_path(&chip)).transpose()?;
        if chip.is_none() && matches!(line, Line::Number(_)) {
            return Err("configData chip is missing: which chip has the line, as /dev/gpiochip0".to_owned());
        }
        let bias = match config.text("bias").as_deref() {
            None | Some("as-is") => None,
            Some("pull-up") => Some(Bias::PullUp),
            Some("pull-down") => Some(Bias::PullDown),
            Some("disabled") => Some(Bias::Disabled),
            Some(other) => {
                return Err(format!("configData bias {other:?} is not pull-up, pull-down, disabled or as-is"));
            }
        };
        let is_output = access == Access::ReadWrite;
        if is_output && bias.is_some() {
            return Err("configData bias is for inputs: the property is ReadWrite".to_owned());
        }
        Ok(Point { chip, line, active_low: config.flag("activeLow")?, bias, is_output })
    }

    fn fits(_: &Point, value: &Value) -> Result<(), String> {
        level(value).map(drop)
    }

    fn is_same(_: &Point, held: &Value, wanted: &Value) -> bool {
        level(held) == level(wanted)
    }

    async fn read(&self, point: &Point) -> Result<Value, Fault> {
        self.with(point, |held| Ok(Value::Flag(held.request.lone_value()? == Level::Active)))
    }

    async fn write(&self, point: &Point, value: &Value) -> Result<(), Fault> {
        let level = level(value).map_err(Fault::Refused)?;
        // Sets level and direction at once, so that the line never has another level.
        self.with(point, |held| held.request.reconfigure(&lines(&held.chip, held.number, point, Some(level))))
    }

    fn retain(&self, points: &[&Point]) {
        self.held.borrow_mut().retain(|held| points.contains(&&held.point));
    }
}

impl Gpio {
    fn with<T>(&self, point: &Point, work: impl FnOnce(&Held) -> gpiocdev::Result<T>) -> Result<T, Fault> {
        let mut all = self.held.borrow_mut();
        let done = match all.iter().find(|held| held.point == *point) {
            Some(held) => work(held),
            None => request(point).and_then(|held| {
                let done = work(&held);
                all.push(held);
                done
            }),
        };
        done.map_err(|error| {
            // Requested again next time: its chip may have been removed and added again.
            all.retain(|held| held.point != *point);
            let chip = point.chip.as_deref().unwrap_or("any chip".as_ref());
            Fault::Silent(format!("line {} of {}: {error}", point.line, chip.display()))
        })
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Named(name) => out.write_str(name),
        }
    }
}

/// Accepts paths of chips only.
fn chip_path(chip: &str) -> Result<PathBuf, String> {
    let name = chip.strip_prefix("/dev/").unwrap_or(chip);
    match name.strip_prefix("gpiochip") {
        Some(number) if (1..=4).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(PathBuf::from("/dev").join(name))
        }
        _ => Err(format!("configData chip {chip:?} is no chip, as /dev/gpiochip0")),
    }
}

fn level(value: &Value) -> Result<Level, String> {
    match value {
        Value::Flag(true) | Value::Whole(1) => Ok(Level::Active),
        Value::Flag(false) | Value::Whole(0) => Ok(Level::Inactive),
        _ => Err("a line is on or off, 1 or 0".to_owned()),
    }
}

/// The request to the kernel. `level`: the level of an output to drive.
fn lines(chip: &std::path::Path, number: u32, point: &Point, level: Option<Level>) -> Lines {
    let mut lines = Lines::default();
    lines.on_chip(chip).with_line(number);
    match level {
        Some(level) => lines.as_output(level),
        None if point.is_output => lines.as_is(),
        None => lines.as_input(),
    };
    if point.active_low {
        lines.as_active_low();
    }
    if let Some(bias) = point.bias {
        lines.with_bias(bias);
    }
    lines
}

fn request(point: &Point) -> gpiocdev::Result<Held> {
    let missing = |name: &str| gpiocdev::Error::InvalidArgument(format!("no chip has a line named {name}"));
    let (chip, number) = match (&point.chip, &point.line) {
        (Some(chip), Line::Number(number)) => (chip.clone(), *number),
        (Some(chip), Line::Named(name)) => {
            let info = gpiocdev::Chip::from_path(chip)?.find_line_info(name).ok_or_else(|| missing(name))?;
            (chip.clone(), info.offset)
        }
        (None, Line::Named(name)) => {
            let found = gpiocdev::find_named_line(name).ok_or_else(|| missing(name))?;
            (found.chip, found.info.offset)
        }
        (None, Line::Number(_)) => return Err(gpiocdev::Error::InvalidArgument("no chip is named".to_owned())),
    };
    let request = Request::from_config(lines(&chip, number, point, None)).with_consumer("edge-mapper").request()?;
    Ok(Held { point: point.clone(), chip, number, request })
}

#[cfg(test)]
mod tests {
    use gpiocdev::line::Direction;

    use super::*;
    use crate::config_data::Datum;
    use crate::config_data::tests::{config, text};

    fn point(entries: &[(&str, Datum)], access: Access) -> Result<Point, String> {
        Gpio::point(&config(entries), access)
    }

    #[test]
    fn a_line_is_named_by_number_or_name() {
        let chip = ("chip", text("gpiochip0"));
        let numbered = point(&[chip.clone(), ("line", Datum::Number(17.0))], Access::ReadOnly).expect("a line");
        assert_eq!((numbered.chip.as_deref(), numbered.line), (Some("/dev/gpiochip0".as_ref()), Line::Number(17)));
        let named = point(&[("line", text("GPIO17"))], Access::ReadWrite).expect("a line");
        assert_eq!((named.chip, named.line, named.is_output), (None, Line::Named("GPIO17".into()), true));
        for wrong in [
            &[chip.clone()][..],
            &[("line", text("17"))],
            &[chip.clone(), ("line", Datum::Number(-1.0))],
            &[chip.clone(), ("line", Datum::Number(1.5))],
            &[("chip", text("/dev/mem")), ("line", Datum::Number(1.0))],
            &[("chip", text("/dev/gpiochip0/../mem")), ("line", Datum::Number(1.0))],
            &[("chip", text("/dev/gpiochip")), ("line", Datum::Number(1.0))],
            &[chip.clone(), ("line", Datum::Number(1.0)), ("bias", text("up"))],
            &[chip.clone(), ("line", Datum::Number(1.0)), ("activeLow", text("yes"))],
        ] {
            assert!(point(wrong, Access::ReadOnly).is_err(), "{wrong:?}");
        }
        assert!(point(&[("line", text("GPIO17")), ("bias", text("pull-up"))], Access::ReadWrite).is_err());
    }

    #[test]
    fn an_output_is_touched_only_by_a_write() {
        let input = [("line", text("A")), ("bias", text("pull-up")), ("activeLow", Datum::Flag(true))];
        let input = point(&input, Access::ReadOnly).expect("a line");
        let asked = lines("/dev/gpiochip0".as_ref(), 3, &input, None);
        let line = asked.line_config(3).expect("it is asked for");
        assert_eq!((line.direction, line.bias, line.active_low), (Some(Direction::Input), Some(Bias::PullUp), true));

        let output = point(&[("line", text("A"))], Access::ReadWrite).expect("a line");
        let direction = |level| {
            let asked = lines("/dev/gpiochip0".as_ref(), 3, &output, level);
            asked.line_config(3).map(|line| (line.direction, line.value))
        };
        assert_eq!(direction(None), Some((None, None)));
        assert_eq!(direction(Some(Level::Active)), Some((Some(Direction::Output), Some(Level::Active))));
    }

    #[test]
    fn levels_are_two() {
        for (value, expected) in [
            (Value::Flag(true), Ok(Level::Active)),
            (Value::Whole(0), Ok(Level::Inactive)),
            (Value::Whole(2), Err("a line is on or off, 1 or 0".to_owned())),
            (Value::Number(1.0), Err("a line is on or off, 1 or 0".to_owned())),
        ] {
            assert_eq!(level(&value), expected);
        }
    }

    #[test]
    fn a_chip_that_is_not_there_is_a_fault() {
        let gpio = Gpio::default();
        let absent = point(&[("chip", text("gpiochip4095")), ("line", Datum::Number(1.0))], Access::ReadOnly);
        let absent = absent.expect("a line");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert!(matches!(runtime.block_on(gpio.read(&absent)), Err(Fault::Silent(_))));
        assert!(gpio.held.borrow().is_empty());
    }

    /// Needs a chip with two unconnected lines, named by the environment: most machines do not have one, and the
    /// kernels of most distributions do not have a simulated one.
    #[test]
    #[expect(clippy::print_stderr, reason = "a test that is passed over says so")]
    fn lines_of_a_chip_are_driven() {
        let Ok(chip) = std::env::var("TEST_GPIO_CHIP") else {
            return eprintln!("passed over: TEST_GPIO_CHIP names no chip");
        };
        let line = |number: f64, low: bool, access| {
            let entries = [("chip", text(&chip)), ("line", Datum::Number(number)), ("activeLow", Datum::Flag(low))];
            point(&entries, access).expect("a line")
        };
        let (output, input) = (line(0.0, false, Access::ReadWrite), line(1.0, false, Access::ReadOnly));
        let inverted = line(0.0, true, Access::ReadWrite);
        let gpio = Gpio::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            gpio.read(&output).await.expect("as it is");
            gpio.read(&input).await.expect("an input");
            for level in [true, false, true] {
                gpio.write(&output, &Value::Flag(level)).await.expect("an output");
                assert_eq!(gpio.read(&output).await, Ok(Value::Flag(level)));
            }
            // One line has one user.
            assert!(matches!(gpio.read(&inverted).await, Err(Fault::Silent(why)) if why.contains("busy")));
            gpio.retain(&[&inverted, &input]);
            gpio.write(&inverted, &Value::Flag(true)).await.expect("let go by the other");
            assert_eq!(gpio.read(&inverted).await, Ok(Value::Flag(true)));
            gpio.retain(&[]);
            assert_eq!(gpio.read(&output).await, Ok(Value::Flag(false)), "low is ON");
        });
    }
}
