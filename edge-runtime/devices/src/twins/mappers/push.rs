//! Where a mapper pushes values by itself, from the Device's JSON. The node does nothing with it.

use sampan_dmi::{
    AnomalyDetection, DbMethod, DbMethodInfluxdb2, DbMethodMysql, DbMethodRedis, DbMethodTdengine,
    Influxdb2ClientConfig, Influxdb2DataConfig, MysqlClientConfig, PushMethod, PushMethodHttp, PushMethodMqtt,
    PushMethodOtel, RedisClientConfig, TdengineClientConfig,
};
use serde_json::Value;

use super::convert::{any_map, short, text, whole};

/// Parses the push method. A field of another type counts as absent.
pub(super) fn method(push: &Value) -> Option<PushMethod> {
    push.as_object()?;
    Some(PushMethod {
        http: object(&push["http"], |http| PushMethodHttp {
            hostname: text(http, "hostName"),
            port: whole(http, "port"),
            requestpath: text(http, "requestPath"),
            timeout: whole(http, "timeout"),
        }),
        mqtt: object(&push["mqtt"], |mqtt| PushMethodMqtt {
            address: text(mqtt, "address"),
            topic: text(mqtt, "topic"),
            qos: short(mqtt, "qos"),
            retained: mqtt["retained"].as_bool().unwrap_or_default(),
        }),
        db_method: object(&push["dbMethod"], database),
        otel: object(&push["otel"], |otel| PushMethodOtel { endpoint_url: text(otel, "endpointURL") }),
        anomaly_detection: object(&push["anomalyDetection"], |detection| AnomalyDetection {
            data: any_map(detection, &mut |_| {}),
        }),
    })
}

fn object<T>(value: &Value, read: impl FnOnce(&Value) -> T) -> Option<T> {
    value.is_object().then(|| read(value))
}

fn database(databases: &Value) -> DbMethod {
    DbMethod {
        influxdb2: object(&databases["influxdb2"], influxdb2),
        redis: object(&databases["redis"], |redis| DbMethodRedis {
            redis_client_config: object(&redis["redisClientConfig"], |client| RedisClientConfig {
                addr: text(client, "addr"),
                db: short(client, "db"),
                poolsize: short(client, "poolsize"),
                min_idle_conns: short(client, "minIdleConns"),
            }),
        }),
        tdengine: object(&databases["TDEngine"], |tdengine| DbMethodTdengine {
            td_engine_client_config: object(&tdengine["TDEngineClientConfig"], |client| TdengineClientConfig {
                addr: text(client, "addr"),
                dbname: text(client, "dbName"),
            }),
        }),
        mysql: object(&databases["mysql"], |mysql| DbMethodMysql {
            mysql_client_config: object(&mysql["mysqlClientConfig"], |client| MysqlClientConfig {
                addr: text(client, "addr"),
                database: text(client, "database"),
                user_name: text(client, "userName"),
            }),
        }),
    }
}

fn influxdb2(influxdb2: &Value) -> DbMethodInfluxdb2 {
    DbMethodInfluxdb2 {
        influxdb2_client_config: object(&influxdb2["influxdb2ClientConfig"], |client| Influxdb2ClientConfig {
            url: text(client, "url"),
            org: text(client, "org"),
            bucket: text(client, "bucket"),
        }),
        influxdb2_data_config: object(&influxdb2["influxdb2DataConfig"], |data| Influxdb2DataConfig {
            measurement: text(data, "measurement"),
            tag: super::convert::text_map(&data["tag"]),
            field_key: text(data, "fieldKey"),
        }),
    }
}
