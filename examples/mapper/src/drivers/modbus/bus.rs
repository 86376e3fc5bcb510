//! One bus: its connection, made on demand and closed at the first failure, so that a late answer cannot be matched
//! with another request. Knows nothing of the meaning of values.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_modbus::client::{Context, Reader as _, Writer as _, rtu, tcp};
use tokio_modbus::slave::{Slave, SlaveContext as _};
use tokio_modbus::{Error, ExceptionCode};

use super::address::Address;
use super::point::{Point, Raw, Register};
use super::serial::Serial;
use crate::drivers::Fault;

/// Pause between two attempts when a bus is unavailable.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(10);
/// Time to wait for late bytes on a serial line after a timeout.
const QUIET: Duration = Duration::from_millis(200);

pub(super) struct Bus {
    pub(super) address: Address,
    line: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` also during a request: a cancelled request drops the connection.
    context: Option<Context>,
    quiet_until: Option<Instant>,
    absent: Option<Absent>,
}

struct Absent {
    why: String,
    until: Instant,
    pause: Duration,
}

impl Bus {
    pub(super) fn new(address: Address) -> Self {
        Self { address, line: Mutex::default() }
    }

    pub(super) async fn read(&self, point: &Point) -> Result<Raw, Fault> {
        let Point { offset, words, .. } = *point;
        self.ask(point, async |context| {
            let bit = |bits: Vec<bool>| bits.first().copied().map(Raw::Bit).unwrap_or(Raw::Words(Vec::new()));
            match point.register {
                Register::Coil => Ok(context.read_coils(offset, 1).await?.map(bit)),
                Register::Discrete => Ok(context.read_discrete_inputs(offset, 1).await?.map(bit)),
                Register::Input => Ok(context.read_input_registers(offset, words).await?.map(Raw::Words)),
                Register::Holding => Ok(context.read_holding_registers(offset, words).await?.map(Raw::Words)),
            }
        })
        .await
    }

    pub(super) async fn write(&self, point: &Point, raw: &Raw) -> Result<(), Fault> {
        let offset = point.offset;
        self.ask(point, async |context| match raw {
            Raw::Bit(bit) => context.write_single_coil(offset, *bit).await,
            Raw::Words(words) => match words.as_slice() {
                [word] => context.write_single_register(offset, *word).await,
                words => context.write_multiple_registers(offset, words).await,
            },
        })
        .await
    }

    async fn ask<T>(
        &self,
        point: &Point,
        ask: impl AsyncFn(&mut Context) -> tokio_modbus::Result<T>,
    ) -> Result<T, Fault> {
        let mut state = self.line.lock().await;
        let (mut context, mut is_kept) = match state.context.take() {
            Some(context) => (context, true),
            None => (self.connect(&mut state, point.timeout).await?, false),
        };
        loop {
            context.set_slave(Slave(point.slave));
            // Until it is known better, and if this is given up.
            state.quiet_until = Some(Instant::now() + point.timeout + QUIET);
            let answer = timeout(point.timeout, ask(&mut context)).await;
            state.quiet_until = Some(Instant::now() + QUIET);
            return match answer {
                Ok(Ok(answer)) => {
                    (state.context, state.quiet_until) = (Some(context), None);
                    answer.map_err(|exception| refused(point, exception))
                }
                // The server closed the idle connection, as servers do.
                Ok(Err(Error::Transport(error))) if is_kept && is_closed(&error) => {
                    (context, is_kept) = (self.connect(&mut state, point.timeout).await?, false);
                    continue;
                }
                Ok(Err(error)) => Err(Fault::Silent(format!("{}: {}", self.address, text(&error)))),
                Err(_) => {
                    let waited = point.timeout.as_millis();
                    let why = format!("{}: slave {} did not answer in {waited} ms", self.address, point.slave);
                    Err(Fault::Silent(why))
                }
            };
        }
    }

    async fn connect(&self, state: &mut State, patience: Duration) -> Result<Context, Fault> {
        if let Some(absent) = state.absent.as_ref().filter(|absent| absent.until > Instant::now()) {
            return Err(Fault::Silent(absent.why.clone()));
        }
        let connected = match &self.address {
            Address::Tcp(address) => match timeout(patience, TcpStream::connect(address)).await {
                // Small requests, each of which waits for its answer.
                Ok(Ok(stream)) => stream.set_nodelay(true).map(|()| tcp::attach(stream)),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
            Address::Serial(line) => {
                if let Some(until) = state.quiet_until {
                    sleep_until(until).await;
                }
                Serial::open(line).map(rtu::attach)
            }
        };
        match connected {
            Ok(context) => {
                state.absent = None;
                Ok(context)
            }
            Err(error) => {
                let pause = state.absent.as_ref().map_or(PAUSE, |absent| (absent.pause * 2).min(PAUSE_AT_MOST));
                let why = format!("{}: {error}", self.address);
                state.absent = Some(Absent { why: why.clone(), until: Instant::now() + pause, pause });
                Err(Fault::Silent(why))
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Formats an error without the received bytes, which differ each time.
fn text(error: &Error) -> String {
    match error {
        Error::Transport(error) if error.kind() != io::ErrorKind::InvalidData => error.to_string(),
        Error::Transport(_) | Error::Protocol(_) => "an answer is damaged, or another request's".to_owned(),
    }
}

/// A gateway answers for slaves that do not.
fn refused(point: &Point, exception: ExceptionCode) -> Fault {
    let why = format!("slave {} at {:?} {}: {exception}", point.slave, point.register, point.offset);
    match exception {
        ExceptionCode::GatewayPathUnavailable | ExceptionCode::GatewayTargetDevice => Fault::Silent(why),
        _ => Fault::Refused(why),
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Bus({})", self.address)
    }
}
