//! Calls to nghttp2. With `callbacks`, all that is unsafe here.
//!
//! A session owns its handler, and gives the handler's address to nghttp2. nghttp2 calls back only from functions that
//! get the session. These are called with the session borrowed mutably and without a reference to the handler, and
//! handlers have no session to call. So a callback has the only reference to the handler while it runs.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr::{NonNull, null, null_mut};

use libnghttp2_sys as sys;

use crate::callbacks::{Callbacks, body, bytes, values};
use crate::{Error, Field, Handler, Limits, Setting};

pub(crate) const OK: c_int = 0;

/// One connection, of a server or of a client.
#[derive(Debug)]
pub struct Session<H: Handler> {
    raw: NonNull<sys::nghttp2_session>,
    /// Out of a box, and given back to one when the session ends.
    handler: NonNull<H>,
}

impl<H: Handler> Session<H> {
    /// # Errors
    /// Out of memory.
    pub fn server(handler: H, limits: &Limits) -> Result<Self, Error> {
        Self::new(handler, limits, true)
    }

    /// # Errors
    /// Out of memory.
    pub fn client(handler: H, limits: &Limits) -> Result<Self, Error> {
        Self::new(handler, limits, false)
    }

    fn new(handler: H, limits: &Limits, is_server: bool) -> Result<Self, Error> {
        let callbacks = Callbacks::new::<H>()?;
        let options = Options::new(limits)?;
        let handler = NonNull::from(Box::leak(Box::new(handler)));
        let make = if is_server { sys::nghttp2_session_server_new2 } else { sys::nghttp2_session_client_new2 };
        let mut raw = null_mut();
        // SAFETY: callbacks and options are alive, and are copied; the handler lives until the session is deleted.
        let made = unsafe { make(&mut raw, callbacks.as_ptr(), handler.as_ptr().cast(), options.0.as_ptr()) };
        match NonNull::new(raw).filter(|_| made == OK) {
            Some(raw) => Ok(Self { raw, handler }),
            None => {
                // SAFETY: leaked above, and no session uses it.
                drop(unsafe { Box::from_raw(handler.as_ptr()) });
                Err(Error(made))
            }
        }
    }

    pub fn handler(&mut self) -> &mut H {
        // SAFETY: alive as long as the session, and borrowed with it: nghttp2 calls back only out of methods that borrow
        // the session too.
        unsafe { self.handler.as_mut() }
    }

    /// # Errors
    /// Out of memory, or a value is not allowed.
    pub fn settings(&mut self, settings: &[(Setting, u32)]) -> Result<(), Error> {
        let entry = |(setting, value): &(Setting, u32)| sys::nghttp2_settings_entry {
            settings_id: i32::from(*setting as u8),
            value: *value,
        };
        let entries: Vec<sys::nghttp2_settings_entry> = settings.iter().map(entry).collect();
        // SAFETY: the session is alive, and the entries, which are copied.
        check(unsafe { sys::nghttp2_submit_settings(self.raw.as_ptr(), 0, entries.as_ptr(), entries.len()) })
    }

    /// Takes what the peer has sent.
    ///
    /// # Errors
    /// The connection is of no use any more. Lesser errors of the peer's are answered with GOAWAY by nghttp2 itself.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: the session is alive, and the bytes; no reference to the handler is.
        let read = unsafe { sys::nghttp2_session_mem_recv2(self.raw.as_ptr(), bytes.as_ptr(), bytes.len()) };
        if read < 0 { Err(fatal(read)) } else { Ok(()) }
    }

    /// The next bytes to send; empty if nothing is pending.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn send(&mut self) -> Result<&[u8], Error> {
        let mut data = null();
        // SAFETY: the session is alive; no reference to the handler is.
        let length = unsafe { sys::nghttp2_session_mem_send2(self.raw.as_ptr(), &mut data) };
        let length = usize::try_from(length).map_err(|_| fatal(length))?;
        // SAFETY: `length` bytes are readable, and stay unchanged until the next call, for which the session has to be
        // borrowed mutably again.
        Ok(unsafe { bytes(data, length) })
    }

    /// Whether the connection is at its end: there is nothing more to read or to send.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // SAFETY: the session is alive; both only read it.
        unsafe {
            sys::nghttp2_session_want_read(self.raw.as_ptr()) == 0
                && sys::nghttp2_session_want_write(self.raw.as_ptr()) == 0
        }
    }

    /// Whether a client may begin another stream.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        // SAFETY: the session is alive; it is only read.
        unsafe { sys::nghttp2_session_check_request_allowed(self.raw.as_ptr()) != 0 }
    }

    /// Begins a stream, whose body the handler returns; returns its number.
    ///
    /// # Errors
    /// Out of memory, or no number is left.
    pub fn request(&mut self, fields: &[Field<'_>]) -> Result<i32, Error> {
        let (fields, body) = (values(fields), body::<H>());
        // SAFETY: the session is alive, fields and the place of the body too, and all are copied.
        let stream = unsafe {
            let (fields, count) = (fields.as_ptr(), fields.len());
            sys::nghttp2_submit_request2(self.raw.as_ptr(), null(), fields, count, &raw const body, null_mut())
        };
        if stream < 0 { Err(Error(stream)) } else { Ok(stream) }
    }

    /// Answers a stream, with a body that the handler gives or none.
    ///
    /// # Errors
    /// Out of memory, or the stream does not exist.
    pub fn respond(&mut self, stream: i32, fields: &[Field<'_>], has_body: bool) -> Result<(), Error> {
        let (fields, body) = (values(fields), body::<H>());
        let body = if has_body { &raw const body } else { null() };
        // SAFETY: the session is alive, fields and the place of the body too, and all are copied.
        check(unsafe { sys::nghttp2_submit_response2(self.raw.as_ptr(), stream, fields.as_ptr(), fields.len(), body) })
    }

    /// # Errors
    /// Out of memory.
    pub fn reset(&mut self, stream: i32, code: u32) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_submit_rst_stream(self.raw.as_ptr(), 0, stream, code) })
    }

    /// Lets the peer send `count` bytes again on this stream, if it still exists.
    ///
    /// # Errors
    /// Out of memory, or it is more than the peer has sent.
    pub fn consumed(&mut self, stream: i32, count: usize) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_session_consume_stream(self.raw.as_ptr(), stream, count) })
    }

    /// Lets the peer send `count` bytes again on this connection.
    ///
    /// # Errors
    /// Out of memory, or it is more than the peer has sent.
    pub fn consumed_by_all(&mut self, count: usize) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_session_consume_connection(self.raw.as_ptr(), count) })
    }

    /// Announces the end to the peer, and resets the streams in progress.
    ///
    /// # Errors
    /// Out of memory.
    pub fn terminate(&mut self, code: u32) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_session_terminate_session(self.raw.as_ptr(), code) })
    }
}

impl<H: Handler> Drop for Session<H> {
    fn drop(&mut self) {
        // SAFETY: the session is deleted once, and the handler is freed after it, when nothing calls it any more.
        unsafe {
            sys::nghttp2_session_del(self.raw.as_ptr());
            drop(Box::from_raw(self.handler.as_ptr()));
        }
    }
}

struct Options(NonNull<sys::nghttp2_option>);

impl Options {
    fn new(limits: &Limits) -> Result<Self, Error> {
        let mut raw = null_mut();
        // SAFETY: there is a place for the pointer.
        check(unsafe { sys::nghttp2_option_new(&mut raw) })?;
        let options = NonNull::new(raw).ok_or(Error(sys::NGHTTP2_ERR_NOMEM))?;
        // SAFETY: alive.
        unsafe {
            // The owner of the handler decides how much may arrive.
            sys::nghttp2_option_set_no_auto_window_update(raw, 1);
            sys::nghttp2_option_set_max_outbound_ack(raw, limits.acks);
            sys::nghttp2_option_set_max_settings(raw, limits.settings);
            sys::nghttp2_option_set_max_continuations(raw, limits.continuations);
            sys::nghttp2_option_set_stream_reset_rate_limit(raw, limits.resets.0, limits.resets.1);
            sys::nghttp2_option_set_glitch_rate_limit(raw, limits.glitches.0, limits.glitches.1);
            sys::nghttp2_option_set_max_deflate_dynamic_table_size(raw, limits.table);
        }
        Ok(Self(options))
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: deleted once.
        unsafe { sys::nghttp2_option_del(self.0.as_ptr()) }
    }
}

pub(crate) fn check(result: c_int) -> Result<(), Error> {
    if result < 0 { Err(Error(result)) } else { Ok(()) }
}

fn fatal(result: isize) -> Error {
    Error(c_int::try_from(result).unwrap_or(sys::NGHTTP2_ERR_FATAL))
}

pub(crate) fn text(error: Error) -> &'static str {
    // SAFETY: the texts are constants of nghttp2, with a NUL at the end, one for every number.
    unsafe { CStr::from_ptr(sys::nghttp2_strerror(error.0)) }.to_str().unwrap_or("an error of HTTP/2")
}
