//! The form of every message over MQTT, compared as text.

mod support;
