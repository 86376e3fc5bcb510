//! Where a mapper pushes values by itself: passed on as the Device has it.

use std::collections::BTreeMap;

use prost::Message;

use crate::Any;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PushMethod {
    #[prost(message, optional, tag = "1")]
    pub http: Option<PushMethodHttp>,
    #[prost(message, optional, tag = "2")]
    pub mqtt: Option<PushMethodMqtt>,
    #[prost(message, optional, tag = "3")]
    pub db_method: Option<DbMethod>,
    #[prost(message, optional, tag = "4")]
    pub otel: Option<PushMethodOtel>,
    #[prost(message, optional, tag = "5")]
    pub anomaly_detection: Option<AnomalyDetection>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PushMethodHttp {
    #[prost(string, tag = "1")]
    pub hostname: String,
    #[prost(int64, tag = "2")]
    pub port: i64,
    #[prost(string, tag = "3")]
    pub requestpath: String,
    #[prost(int64, tag = "4")]
    pub timeout: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PushMethodMqtt {
    #[prost(string, tag = "1")]
    pub address: String,
    #[prost(string, tag = "2")]
    pub topic: String,
    #[prost(int32, tag = "3")]
    pub qos: i32,
    #[prost(bool, tag = "4")]
    pub retained: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PushMethodOtel {
    #[prost(string, tag = "1")]
    pub endpoint_url: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct AnomalyDetection {
    #[prost(btree_map = "string, message", tag = "1")]
    pub data: BTreeMap<String, Any>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DbMethod {
    #[prost(message, optional, tag = "1")]
    pub influxdb2: Option<DbMethodInfluxdb2>,
    #[prost(message, optional, tag = "2")]
    pub redis: Option<DbMethodRedis>,
    #[prost(message, optional, tag = "3")]
    pub tdengine: Option<DbMethodTdengine>,
    #[prost(message, optional, tag = "4")]
    pub mysql: Option<DbMethodMysql>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DbMethodInfluxdb2 {
    #[prost(message, optional, tag = "1")]
    pub influxdb2_client_config: Option<Influxdb2ClientConfig>,
    #[prost(message, optional, tag = "2")]
    pub influxdb2_data_config: Option<Influxdb2DataConfig>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Influxdb2ClientConfig {
    #[prost(string, tag = "1")]
    pub url: String,
    #[prost(string, tag = "2")]
    pub org: String,
    #[prost(string, tag = "3")]
    pub bucket: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Influxdb2DataConfig {
    #[prost(string, tag = "1")]
    pub measurement: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub tag: BTreeMap<String, String>,
    #[prost(string, tag = "3")]
    pub field_key: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DbMethodRedis {
    #[prost(message, optional, tag = "1")]
    pub redis_client_config: Option<RedisClientConfig>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RedisClientConfig {
    #[prost(string, tag = "1")]
    pub addr: String,
    #[prost(int32, tag = "2")]
    pub db: i32,
    #[prost(int32, tag = "3")]
    pub poolsize: i32,
    #[prost(int32, tag = "4")]
    pub min_idle_conns: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DbMethodTdengine {
    #[prost(message, optional, tag = "1")]
    pub td_engine_client_config: Option<TdengineClientConfig>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TdengineClientConfig {
    #[prost(string, tag = "1")]
    pub addr: String,
    #[prost(string, tag = "2")]
    pub dbname: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DbMethodMysql {
    #[prost(message, optional, tag = "1")]
    pub mysql_client_config: Option<MysqlClientConfig>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct MysqlClientConfig {
    #[prost(string, tag = "1")]
    pub addr: String,
    #[prost(string, tag = "2")]
    pub database: String,
    #[prost(string, tag = "3")]
    pub user_name: String,
}
