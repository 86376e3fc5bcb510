//! Registers and coils over Modbus: TCP, or RTU on a serial line. Devices on one bus share its connection, and their requests go one
//! by one, as the bus wants it.
//!
//! | file | owns |
//! |---|---|
//! | `address` | which bus a device is on: pure |
//! | `point` | what a configuration means, and words of registers as values: pure |
//! | `bus` | one connection, its failures and its pauses |
//! | `serial` | a serial line as a stream of bytes |

mod address;
mod bus;
mod point;
mod serial;

use std::cell::RefCell;
use std::rc::Rc;

use super::{Access, Driver, Fault};
use crate::config_data::Config;
use crate::value::Value;
use bus::Bus;
pub use point::Point;

#[derive(Debug, Default)]
pub struct Modbus {
    buses: RefCell<Vec<Rc<Bus>>>,
}

impl Modbus {
    fn bus(&self, point: &Point) -> Rc<Bus> {
        let mut buses = self.buses.borrow_mut();
        if let Some(bus) = buses.iter().find(|bus| bus.address == point.bus) {
            return Rc::clone(bus);
        }
        let bus = Rc::new(Bus::new(point.bus.clone()));
        buses.push(Rc::clone(&bus));
        bus
    }
}

impl Driver for Modbus {
    const PROTOCOL: &'static str = "modbus";
    const KEEPS: bool = true;
    type Point = Point;

    fn point(config: &Config, access: Access) -> Result<Point, String> {
        Point::parse(config, access)
    }

    fn fits(point: &Point, value: &Value) -> Result<(), String> {
        point.encode(value).map(drop)
    }

    fn is_same(point: &Point, held: &Value, wanted: &Value) -> bool {
        point.encode(held).is_ok_and(|held| point.encode(wanted) == Ok(held))
    }

    async fn read(&self, point: &Point) -> Result<Value, Fault> {
        point.decode(&self.bus(point).read(point).await?).map_err(Fault::Refused)
    }

    async fn write(&self, point: &Point, value: &Value) -> Result<(), Fault> {
        let raw = point.encode(value).map_err(Fault::Refused)?;
        self.bus(point).write(point, &raw).await
    }

    fn retain(&self, points: &[&Point]) {
        self.buses.borrow_mut().retain(|bus| points.iter().any(|point| point.bus == bus.address));
    }
}
