//! The callbacks of nghttp2, which call the handler. `session` explains why a reference to the handler is sound here.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::slice;

use libnghttp2_sys as sys;

use crate::session::{OK, check};
use crate::{Error, Field, Frame, Handler, Part, Then, frame};

pub(crate) struct Callbacks(NonNull<sys::nghttp2_session_callbacks>);

impl Callbacks {
    pub(crate) const fn as_ptr(&self) -> *const sys::nghttp2_session_callbacks {
        self.0.as_ptr()
    }

    pub(crate) fn new<H: Handler>() -> Result<Self, Error> {
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

/// nghttp2 does not write to any of them.
pub(crate) fn values(fields: &[Field<'_>]) -> Vec<sys::nghttp2_nv> {
    let value = |(name, value): &Field<'_>| sys::nghttp2_nv {
        name: name.as_ptr().cast_mut(),
        value: value.as_ptr().cast_mut(),
        namelen: name.len(),
        valuelen: value.len(),
        flags: 0,
    };
    fields.iter().map(value).collect()
}

/// Source of the handler's body.
pub(crate) fn body<H: Handler>() -> sys::nghttp2_data_provider2 {
    sys::nghttp2_data_provider2 { source: sys::nghttp2_data_source { ptr: null_mut() }, read_callback: Some(read::<H>) }
}

/// # Safety
/// `length` bytes at `start` are readable, and do not change while the result is used.
pub(crate) unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
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
    // SAFETY: called by nghttp2 with what its documentation says.
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
    // SAFETY: called by nghttp2 with what its documentation says.
    let (handler, stream, name, value) =
        unsafe { (handler::<H>(user), (*frame).hd.stream_id, bytes(name, name_length), bytes(value, value_length)) };
    handler.field(stream, name, value).map_or(sys::NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE, |()| OK)
}

unsafe extern "C" fn on_frame_recv<H: Handler>(
    _: *mut sys::nghttp2_session,
    received: *const sys::nghttp2_frame,
    user: *mut c_void,
) -> c_int {
    // SAFETY: called by nghttp2 with what its documentation says, and every kind begins with its head.
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
    // SAFETY: called by nghttp2 with what its documentation says.
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
    // SAFETY: called by nghttp2 with what its documentation says.
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
    // SAFETY: called by nghttp2 with what its documentation says.
    let Some(Part { bytes, then }) = unsafe { handler::<H>(user) }.part(stream, length) else { return REFUSED };
    let count = bytes.len().min(length);
    // SAFETY: there is room for `count` bytes, in a buffer of nghttp2's own.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(room, count) };
    let ends = match then {
        Then::More => 0,
        Then::End => sys::NGHTTP2_DATA_FLAG_EOF,
        Then::Trailers(fields) => {
            let fields = values(&fields);
            // SAFETY: allowed within this callback; it calls no callback, and copies the fields.
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
