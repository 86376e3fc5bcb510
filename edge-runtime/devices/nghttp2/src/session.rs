//! Calls to nghttp2, and its calls back: all that is unsafe here.
//!
//! A session owns its handler, and gives nghttp2 the handler's address. nghttp2 calls back only while a function of it runs that
//! was given the session, all of which are called with the session borrowed mutably and no reference to the handler alive;
//! handlers have no session to call. So a callback's is the only reference to the handler for as long as it runs.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::slice;

use libnghttp2_sys as sys;

use crate::{Error, Field, Frame, Handler, Limits, Part, Setting, Then, frame};

const OK: c_int = 0;

/// One connection, of a server or of a client.
#[derive(Debug)]
pub struct Session<H: Handler> {
    raw: NonNull<sys::nghttp2_session>,
    /// Out of a box, and given back to one when the session ends.
    handler: NonNull<H>,
}

impl<H: Handler> Session<H> {
    /// # Errors
    /// There is no memory.
    pub fn server(handler: H, limits: &Limits) -> Result<Self, Error> {
        Self::new(handler, limits, true)
    }

    /// # Errors
    /// There is no memory.
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
        let made = unsafe { make(&mut raw, callbacks.0.as_ptr(), handler.as_ptr().cast(), options.0.as_ptr()) };
        match NonNull::new(raw).filter(|_| made == OK) {
            Some(raw) => Ok(Self { raw, handler }),
            None => {
                // SAFETY: leaked above, and no session has it.
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
    /// There is no memory, or a value is not allowed.
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

    /// What is to be sent next; empty when there is nothing.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub fn send(&mut self) -> Result<&[u8], Error> {
        let mut data = null();
        // SAFETY: the session is alive; no reference to the handler is.
        let length = unsafe { sys::nghttp2_session_mem_send2(self.raw.as_ptr(), &mut data) };
        let length = usize::try_from(length).map_err(|_| fatal(length))?;
        // SAFETY: so many bytes are there, and stay unchanged until the next call, for which the session has to be
        // borrowed mutably again.
        Ok(unsafe { bytes(data, length) })
    }

    /// Neither more is to be read nor anything to be sent: the connection is at its end.
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

    /// Begins a stream, whose body the handler gives; its number.
    ///
    /// # Errors
    /// There is no memory, or no number left.
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
    /// There is no memory, or no such stream.
    pub fn respond(&mut self, stream: i32, fields: &[Field<'_>], has_body: bool) -> Result<(), Error> {
        let (fields, body) = (values(fields), body::<H>());
        let body = if has_body { &raw const body } else { null() };
        // SAFETY: the session is alive, fields and the place of the body too, and all are copied.
        check(unsafe { sys::nghttp2_submit_response2(self.raw.as_ptr(), stream, fields.as_ptr(), fields.len(), body) })
    }

    /// # Errors
    /// There is no memory.
    pub fn reset(&mut self, stream: i32, code: u32) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_submit_rst_stream(self.raw.as_ptr(), 0, stream, code) })
    }

    /// Lets the peer send so many bytes again on this stream, if it is still there.
    ///
    /// # Errors
    /// There is no memory, or it is more than the peer has sent.
    pub fn consumed(&mut self, stream: i32, count: usize) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_session_consume_stream(self.raw.as_ptr(), stream, count) })
    }

    /// Lets the peer send so many bytes again on this connection.
    ///
    /// # Errors
    /// There is no memory, or it is more than the peer has sent.
    pub fn consumed_by_all(&mut self, count: usize) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_session_consume_connection(self.raw.as_ptr(), count) })
    }

    /// Tells the peer that this is the end, and resets what is under way.
    ///
    /// # Errors
    /// There is no memory.
    pub fn terminate(&mut self, code: u32) -> Result<(), Error> {
        // SAFETY: the session is alive.
        check(unsafe { sys::nghttp2_session_terminate_session(self.raw.as_ptr(), code) })
    }
}

impl<H: Handler> Drop for Session<H> {
    fn drop(&mut self) {
        // SAFETY: the session is deleted once, and the handler given back after it: nobody calls it any more.
        unsafe {
            sys::nghttp2_session_del(self.raw.as_ptr());
            drop(Box::from_raw(self.handler.as_ptr()));
        }
    }
}

struct Callbacks(NonNull<sys::nghttp2_session_callbacks>);

impl Callbacks {
    fn new<H: Handler>() -> Result<Self, Error> {
        let mut raw = null_mut();
        // SAFETY: there is a place for the pointer.
        check(unsafe { sys::nghttp2_session_callbacks_new(&mut raw) })?;
        let callbacks = NonNull::new(raw).ok_or(Error(sys::NGHTTP2_ERR_NOMEM))?;
        // SAFETY: alive; the functions have the types that are asked for, and user data of H is given with them alone.
        unsafe {
            sys::nghttp2_session_callbacks_set_on_begin_frame_callback(raw, Some(on_begin_frame::<H>));
            sys::nghttp2_session_callbacks_set_on_header_callback(raw, Some(on_header::<H>));
            sys::nghttp2_session_callbacks_set_on_frame_recv_callback(raw, Some(on_frame_recv::<H>));
            sys::nghttp2_session_callbacks_set_on_data_chunk_recv_callback(raw, Some(on_data_chunk_recv::<H>));
            sys::nghttp2_session_callbacks_set_on_stream_close_callback(raw, Some(on_stream_close::<H>));
        }
        Ok(Self(callbacks))
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        // SAFETY: deleted once.
        unsafe { sys::nghttp2_session_callbacks_del(self.0.as_ptr()) }
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
            // What may come is for the handler's owner to say.
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

/// nghttp2 writes to none of them.
fn values(fields: &[Field<'_>]) -> Vec<sys::nghttp2_nv> {
    let value = |(name, value): &Field<'_>| sys::nghttp2_nv {
        name: name.as_ptr().cast_mut(),
        value: value.as_ptr().cast_mut(),
        namelen: name.len(),
        valuelen: value.len(),
        flags: 0,
    };
    fields.iter().map(value).collect()
}

fn body<H: Handler>() -> sys::nghttp2_data_provider2 {
    sys::nghttp2_data_provider2 { source: sys::nghttp2_data_source { ptr: null_mut() }, read_callback: Some(read::<H>) }
}

fn check(result: c_int) -> Result<(), Error> {
    if result < 0 { Err(Error(result)) } else { Ok(()) }
}

fn fatal(result: isize) -> Error {
    Error(c_int::try_from(result).unwrap_or(sys::NGHTTP2_ERR_FATAL))
}

pub(crate) fn text(error: Error) -> &'static str {
    // SAFETY: the texts are constants of nghttp2, with a NUL at the end, one for every number.
    unsafe { CStr::from_ptr(sys::nghttp2_strerror(error.0)) }.to_str().unwrap_or("an error of HTTP/2")
}

/// # Safety
/// So many bytes are there, and do not change for as long as what is returned is used.
unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: see above.
    unsafe { slice::from_raw_parts(start, length) }
}

/// # Safety
/// `user` is the address of a session's handler of this type, and nothing else refers to it.
unsafe fn handler<'a, H: Handler>(user: *mut c_void) -> &'a mut H {
    // SAFETY: see above.
    unsafe { &mut *user.cast() }
}

unsafe extern "C" fn on_begin_frame<H: Handler>(
    _: *mut sys::nghttp2_session,
    head: *const sys::nghttp2_frame_hd,
    user: *mut c_void,
) -> c_int {
    // SAFETY: called by nghttp2 with what its documentation says; see the top of this file.
    let (handler, head) = unsafe { (handler::<H>(user), &*head) };
    let frame = Frame { kind: head.type_, flags: head.flags, stream: head.stream_id, length: head.length };
    handler.frame(frame).map_or(sys::NGHTTP2_ERR_CALLBACK_FAILURE, |()| OK)
}

unsafe extern "C" fn on_header<H: Handler>(
    _: *mut sys::nghttp2_session,
    frame: *const sys::nghttp2_frame,
    name: *const u8,
    name_length: usize,
    value: *const u8,
    value_length: usize,
    _: u8,
    user: *mut c_void,
) -> c_int {
    // SAFETY: called by nghttp2 with what its documentation says; see the top of this file.
    let (handler, stream, name, value) =
        unsafe { (handler::<H>(user), (*frame).hd.stream_id, bytes(name, name_length), bytes(value, value_length)) };
    handler.field(stream, name, value).map_or(sys::NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE, |()| OK)
}

unsafe extern "C" fn on_frame_recv<H: Handler>(
    _: *mut sys::nghttp2_session,
    received: *const sys::nghttp2_frame,
    user: *mut c_void,
) -> c_int {
    // SAFETY: called by nghttp2 with what its documentation says; see the top of this file. Every kind begins with its head.
    let (handler, head) = unsafe { (handler::<H>(user), (*received).hd) };
    let end = head.flags & frame::END_STREAM != 0;
    match head.type_ {
        frame::HEADERS => handler.fields_end(head.stream_id, end),
        frame::DATA if end => handler.data_end(head.stream_id),
        _ => {}
    }
    OK
}

unsafe extern "C" fn on_data_chunk_recv<H: Handler>(
    _: *mut sys::nghttp2_session,
    _: u8,
    stream: i32,
    data: *const u8,
    length: usize,
    user: *mut c_void,
) -> c_int {
    // SAFETY: called by nghttp2 with what its documentation says; see the top of this file.
    let (handler, data) = unsafe { (handler::<H>(user), bytes(data, length)) };
    handler.data(stream, data);
    OK
}

unsafe extern "C" fn on_stream_close<H: Handler>(
    _: *mut sys::nghttp2_session,
    stream: i32,
    code: u32,
    user: *mut c_void,
) -> c_int {
    // SAFETY: called by nghttp2 with what its documentation says; see the top of this file.
    unsafe { handler::<H>(user) }.closed(stream, code);
    OK
}

unsafe extern "C" fn read<H: Handler>(
    session: *mut sys::nghttp2_session,
    stream: i32,
    room: *mut u8,
    length: usize,
    flags: *mut u32,
    _: *mut sys::nghttp2_data_source,
    user: *mut c_void,
) -> sys::nghttp2_ssize {
    const REFUSED: sys::nghttp2_ssize = sys::NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE as sys::nghttp2_ssize;
    // SAFETY: called by nghttp2 with what its documentation says; see the top of this file.
    let Some(Part { bytes, then }) = unsafe { handler::<H>(user) }.part(stream, length) else { return REFUSED };
    let count = bytes.len().min(length);
    // SAFETY: there is room for so many, in a buffer of nghttp2's own.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(room, count) };
    let ends = match then {
        Then::More => 0,
        Then::End => sys::NGHTTP2_DATA_FLAG_EOF,
        Then::Trailers(fields) => {
            let fields = values(&fields);
            // SAFETY: allowed within this callback; it calls back nobody, and copies the fields.
            if unsafe { sys::nghttp2_submit_trailer(session, stream, fields.as_ptr(), fields.len()) } < 0 {
                return REFUSED;
            }
            sys::NGHTTP2_DATA_FLAG_EOF | sys::NGHTTP2_DATA_FLAG_NO_END_STREAM
        }
    };
    // SAFETY: nghttp2's own variable for this.
    unsafe { *flags |= ends };
    count.try_into().unwrap_or(REFUSED)
}
