//! A Modbus slave behind TCP, by tokio-modbus' server: registers in memory, and a list of writes.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener as Listener};
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio_modbus::server::Service;
use tokio_modbus::server::tcp::{Server, accept_tcp_connection};
use tokio_modbus::{ExceptionCode, Request, Response};

#[derive(Default)]
pub(crate) struct Bank {
    pub(crate) words: BTreeMap<u16, u16>,
    pub(crate) coils: BTreeMap<u16, bool>,
    /// Each write: where, and what.
    pub(crate) writes: Vec<(u16, Vec<u16>)>,
    pub(crate) reads: usize,
    /// Answers nothing.
    pub(crate) hangs: bool,
}

impl Bank {
    pub(crate) fn answer(&mut self, request: &Request<'_>) -> Result<Response, ExceptionCode> {
        match request {
            Request::ReadHoldingRegisters(at, count) => {
                self.reads += 1;
                self.read(*at, *count).map(Response::ReadHoldingRegisters)
            }
            Request::ReadInputRegisters(at, count) => {
                self.reads += 1;
                self.read(*at, *count).map(Response::ReadInputRegisters)
            }
            Request::ReadCoils(at, 1) => {
                let coil = self.coils.get(at).copied().ok_or(ExceptionCode::IllegalDataAddress)?;
                Ok(Response::ReadCoils(vec![coil]))
            }
            Request::WriteSingleCoil(at, coil) => {
                self.writes.push((*at, vec![u16::from(*coil)]));
                self.coils.insert(*at, *coil);
                Ok(Response::WriteSingleCoil(*at, *coil))
            }
            Request::WriteSingleRegister(at, word) => {
                self.writes.push((*at, vec![*word]));
                self.words.insert(*at, *word);
                Ok(Response::WriteSingleRegister(*at, *word))
            }
            Request::WriteMultipleRegisters(at, words) => {
                self.writes.push((*at, words.to_vec()));
                self.words.extend((*at..).zip(words.iter().copied()));
                Ok(Response::WriteMultipleRegisters(*at, u16::try_from(words.len()).unwrap()))
            }
            _ => Err(ExceptionCode::IllegalFunction),
        }
    }

    fn read(&self, at: u16, count: u16) -> Result<Vec<u16>, ExceptionCode> {
        (at..at + count).map(|at| self.words.get(&at).copied().ok_or(ExceptionCode::IllegalDataAddress)).collect()
    }
}

#[derive(Clone)]
pub(crate) struct Slave {
    pub(crate) bank: Arc<Mutex<Bank>>,
    pub(crate) address: SocketAddr,
}

struct Serving(Arc<Mutex<Bank>>);

impl Service for Serving {
    type Request = Request<'static>;
    type Response = Response;
    type Exception = ExceptionCode;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response, ExceptionCode>> + Send>>;

    fn call(&self, request: Request<'static>) -> Self::Future {
        let mut bank = self.0.lock().unwrap();
        if bank.hangs {
            return Box::pin(std::future::pending());
        }
        let answer = bank.answer(&request);
        Box::pin(std::future::ready(answer))
    }
}

impl Slave {
    pub(crate) fn start(words: &[(u16, u16)]) -> Self {
        let bank = Bank { words: words.iter().copied().collect(), ..Bank::default() };
        let bank = Arc::new(Mutex::new(bank));
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&bank);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let server = Server::new(TcpListener::from_std(listener).unwrap());
                let connected = |stream, address| {
                    let bank = Arc::clone(&shared);
                    async move { accept_tcp_connection(stream, address, |_| Ok(Some(Serving(Arc::clone(&bank))))) }
                };
                // Ends with the process.
                let _ = server.serve(&connected, |_| {}).await;
            });
        });
        Self { bank, address }
    }

    pub(crate) fn set(&self, at: u16, word: u16) {
        self.bank.lock().unwrap().words.insert(at, word);
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.bank.lock().unwrap().hangs = hangs;
    }

    pub(crate) fn writes(&self) -> Vec<(u16, Vec<u16>)> {
        self.bank.lock().unwrap().writes.clone()
    }

    pub(crate) fn reads(&self) -> usize {
        self.bank.lock().unwrap().reads
    }
}
