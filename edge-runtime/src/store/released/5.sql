CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL, digest TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE pods (uid TEXT PRIMARY KEY, record TEXT NOT NULL, manifest TEXT) WITHOUT ROWID;
CREATE TABLE images (id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE image_references (reference TEXT PRIMARY KEY, image TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT UNIQUE, report TEXT NOT NULL, seen INTEGER);
CREATE TABLE tokens (
    uid TEXT NOT NULL, name TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (uid, name)) WITHOUT ROWID;
CREATE TABLE device_twins (uid TEXT PRIMARY KEY, record TEXT NOT NULL, written INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE device_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, class INTEGER NOT NULL, expires INTEGER NOT NULL,
    bytes INTEGER NOT NULL, record TEXT NOT NULL);
CREATE INDEX device_messages_of_rule ON device_messages (rule, id);
CREATE INDEX device_messages_by_class ON device_messages (class, id, bytes);
