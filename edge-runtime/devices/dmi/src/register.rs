//! A mapper says that it is there, and is given its devices.

use prost::Message;

use crate::{Device, DeviceModel};

#[derive(Clone, PartialEq, Eq, Message)]
pub struct MapperRegisterRequest {
    /// Whether the answer is to hold the devices.
    #[prost(bool, tag = "1")]
    pub with_data: bool,
    #[prost(message, optional, tag = "2")]
    pub mapper: Option<MapperInfo>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct MapperInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, tag = "3")]
    pub api_version: String,
    /// Protocol of the devices it drives: `Device.spec.protocol.protocolName`.
    #[prost(string, tag = "4")]
    pub protocol: String,
    /// Path of the unix socket at which it serves.
    #[prost(bytes = "vec", tag = "5")]
    pub address: Vec<u8>,
    #[prost(string, tag = "6")]
    pub state: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct MapperRegisterResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_list: Vec<DeviceModel>,
    #[prost(message, repeated, tag = "2")]
    pub device_list: Vec<Device>,
}
