//! DeviceModels, as mappers are given them.

use prost::Message;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceModel {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<DeviceModelSpec>,
    #[prost(string, tag = "3")]
    pub namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceModelSpec {
    #[prost(message, repeated, tag = "1")]
    pub properties: Vec<ModelProperty>,
    /// KubeEdge never fills it.
    #[prost(message, repeated, tag = "2")]
    pub commands: Vec<DeviceCommand>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelProperty {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, tag = "3")]
    pub r#type: String,
    #[prost(string, tag = "4")]
    pub access_mode: String,
    #[prost(string, tag = "5")]
    pub minimum: String,
    #[prost(string, tag = "6")]
    pub maximum: String,
    #[prost(string, tag = "7")]
    pub unit: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceCommand {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub url: String,
    #[prost(string, tag = "3")]
    pub method: String,
    #[prost(string, repeated, tag = "4")]
    pub status_code: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub parameters: Vec<String>,
    #[prost(bytes = "vec", tag = "6")]
    pub response: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateDeviceModelResponse {
    #[prost(string, tag = "1")]
    pub device_model_name: String,
    #[prost(string, tag = "2")]
    pub device_model_namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct UpdateDeviceModelRequest {
    #[prost(message, optional, tag = "1")]
    pub model: Option<DeviceModel>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RemoveDeviceModelRequest {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_namespace: String,
}
