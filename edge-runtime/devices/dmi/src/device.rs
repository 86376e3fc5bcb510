//! Devices, as mappers are given them, and the requests that a mapper takes.

use prost::Message;

use crate::{CustomizedValue, DeviceModel, DeviceStatus, PushMethod, TwinProperty};

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<DeviceSpec>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<DeviceStatus>,
    #[prost(string, tag = "4")]
    pub namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceSpec {
    #[prost(string, tag = "1")]
    pub device_model_reference: String,
    #[prost(message, optional, tag = "2")]
    pub protocol: Option<ProtocolConfig>,
    #[prost(message, repeated, tag = "3")]
    pub properties: Vec<DeviceProperty>,
    #[prost(message, repeated, tag = "4")]
    pub methods: Vec<DeviceMethod>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceMethod {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, repeated, tag = "3")]
    pub property_names: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceProperty {
    #[prost(string, tag = "1")]
    pub name: String,
    /// KubeEdge's framework wants it of every property.
    #[prost(message, optional, tag = "2")]
    pub desired: Option<TwinProperty>,
    /// The visitor, with its `configData`.
    #[prost(message, optional, tag = "3")]
    pub visitors: Option<VisitorConfig>,
    /// Milliseconds, as `collect_cycle`.
    #[prost(int64, tag = "4")]
    pub report_cycle: i64,
    #[prost(int64, tag = "5")]
    pub collect_cycle: i64,
    #[prost(bool, tag = "6")]
    pub report_to_cloud: bool,
    #[prost(message, optional, tag = "7")]
    pub push_method: Option<PushMethod>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ProtocolConfig {
    #[prost(string, tag = "1")]
    pub protocol_name: String,
    #[prost(message, optional, tag = "2")]
    pub config_data: Option<CustomizedValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct VisitorConfig {
    #[prost(string, tag = "1")]
    pub protocol_name: String,
    #[prost(message, optional, tag = "2")]
    pub config_data: Option<CustomizedValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegisterDeviceRequest {
    #[prost(message, optional, tag = "1")]
    pub device: Option<Device>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegisterDeviceResponse {
    #[prost(string, tag = "1")]
    pub device_name: String,
    #[prost(string, tag = "2")]
    pub device_namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct UpdateDeviceRequest {
    #[prost(message, optional, tag = "1")]
    pub device: Option<Device>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RemoveDeviceRequest {
    #[prost(string, tag = "1")]
    pub device_name: String,
    #[prost(string, tag = "2")]
    pub device_namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetDeviceRequest {
    #[prost(string, tag = "1")]
    pub device_name: String,
    #[prost(string, tag = "2")]
    pub device_namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetDeviceResponse {
    #[prost(message, optional, tag = "1")]
    pub device: Option<Device>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateDeviceModelRequest {
    #[prost(message, optional, tag = "1")]
    pub model: Option<DeviceModel>,
}
