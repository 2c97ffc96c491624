BEGIN TRANSACTION;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "counters" VALUES('runs_dropped',2);
CREATE TABLE failures (
        seq INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        identity TEXT NOT NULL,
        step_id TEXT NOT NULL,
        scorer TEXT NOT NULL,
        error TEXT NOT NULL,
        message TEXT NOT NULL,
        will_retry INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        occurred_ns INTEGER NOT NULL
    );
INSERT INTO "failures" VALUES(1,2,'x','','belief','EngineUnreachable','nothing answers',1,1,5);
CREATE TABLE leases (
        owner TEXT PRIMARY KEY,
        place TEXT NOT NULL,
        pid INTEGER NOT NULL,
        born TEXT NOT NULL,
        expires_ns INTEGER NOT NULL
    ) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE origins (
        id INTEGER PRIMARY KEY,
        scorer TEXT NOT NULL,
        version TEXT NOT NULL,
        engine TEXT NOT NULL,
        prompts TEXT NOT NULL,
        references_hash TEXT NOT NULL,
        reference_source TEXT NOT NULL,
        UNIQUE (scorer, version, engine, prompts, references_hash, reference_source)
    );
INSERT INTO "origins" VALUES(1,'utility','1','m/first','default/1','','none');
CREATE TABLE passage_uses (digest BLOB PRIMARY KEY, uses INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "passage_uses" VALUES(X'1E5106D75103BE51DA092AEDB67D580F',1);
INSERT INTO "passage_uses" VALUES(X'366FDB56260F0A088FFD715AFBECCF2A',1);
INSERT INTO "passage_uses" VALUES(X'C47263C7D53508756406DDA21D15D49B',1);
CREATE TABLE passages (digest BLOB PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO "passages" VALUES(X'C47263C7D53508756406DDA21D15D49B','passage 0 0 says something');
INSERT INTO "passages" VALUES(X'366FDB56260F0A088FFD715AFBECCF2A','passage 0 1 says something');
INSERT INTO "passages" VALUES(X'1E5106D75103BE51DA092AEDB67D580F','passage 0 2 says something');
INSERT INTO "passages" VALUES(X'FE6883F979DBECE9FF3522619DBE793D','passage 1 0 says something');
INSERT INTO "passages" VALUES(X'ADBA950FDE95122D323647BACB3F5B0B','passage 1 1 says something');
INSERT INTO "passages" VALUES(X'E4217F145A040BAD089294D290D70817','passage 1 2 says something');
CREATE TABLE runs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        question TEXT NOT NULL,
        answer TEXT,
        status TEXT NOT NULL,
        started_ns INTEGER NOT NULL,
        ended_ns INTEGER NOT NULL,
        body TEXT NOT NULL,
        revision INTEGER NOT NULL DEFAULT 1,
        owner TEXT,
        due_ns INTEGER,
        queued_ns INTEGER,
        emit_after INTEGER,
        attempts INTEGER NOT NULL DEFAULT 0
    );
INSERT INTO "runs" VALUES(1,'r1','agent','who founded it?','Ada Berg','ok',1000,9000,'{"references":["Ada Berg"],"metadata":{"user":7}}',1,NULL,NULL,NULL,NULL,1);
INSERT INTO "runs" VALUES(2,'r2','agent','who founded it?','Ada Berg','ok',1000,9000,'{"references":["Ada Berg"],"metadata":{"user":7}}',1,'727b43e29f4e4d4dac45525287f7ab5f',5,1795231457437524239,NULL,1);
CREATE TABLE scores (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL,
        key BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL,
        value REAL NOT NULL,
        level TEXT NOT NULL,
        step_id TEXT NOT NULL,
        passage_id TEXT NOT NULL,
        position INTEGER,
        stage TEXT NOT NULL,
        sub_question INTEGER,
        stderr REAL,
        expectation REAL,
        label TEXT NOT NULL,
        explanation TEXT NOT NULL,
        origin INTEGER NOT NULL,
        usage TEXT NOT NULL,
        metadata TEXT NOT NULL
    );
INSERT INTO "scores" VALUES(1,1,X'33A07ED07F648A9EA5FDA639041741B3','udcg',0.5,'step','r1-s0','',NULL,'passages',NULL,NULL,NULL,'','',1,'','');
INSERT INTO "scores" VALUES(2,1,X'5D7751EF1A2748D604BF368849EC9801','udcg',0.5,'step','r1-s1','',NULL,'passages',NULL,NULL,NULL,'','',1,'','');
INSERT INTO "scores" VALUES(3,1,X'F9CE5B70F155BE168FA1D9E63724F1C5','udcg_context',0.5,'run','','',NULL,'passages',NULL,NULL,NULL,'','',1,'','');
CREATE TABLE scorings (
        run INTEGER NOT NULL,
        identity TEXT NOT NULL,
        revision INTEGER NOT NULL,
        finished INTEGER NOT NULL,
        PRIMARY KEY (run, identity)
    ) WITHOUT ROWID;
INSERT INTO "scorings" VALUES(1,'x',1,1);
INSERT INTO "scorings" VALUES(2,'x',1,0);
CREATE TABLE steps (
        seq INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        id TEXT NOT NULL,
        idx INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        query TEXT NOT NULL,
        status TEXT NOT NULL,
        tool TEXT NOT NULL,
        started_ns INTEGER NOT NULL,
        ended_ns INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (run, id)
    );
INSERT INTO "steps" VALUES(1,1,'r1-s0',0,0,'hop 0','ok','',2000,3000,'{"passages":[0,1,2],"items":[["c47263c7d53508756406dda21d15d49b","p0",1.0,{"page":0},null],["366fdb56260f0a088ffd715afbeccf2a","p1",0.5,{"page":1},null],["1e5106d75103be51da092aedb67d580f","p2",0.3333333333333333,{"page":2},null]]}');
INSERT INTO "steps" VALUES(2,1,'r1-s1',1,1,'hop 1','ok','',2000,3000,'{"passages":[0,1,2],"items":[["fe6883f979dbece9ff3522619dbe793d","p0",1.0,{"page":0},null],["adba950fde95122d323647bacb3f5b0b","p1",0.5,{"page":1},null],["e4217f145a040bad089294d290d70817","p2",0.3333333333333333,{"page":2},null]]}');
INSERT INTO "steps" VALUES(3,2,'r2-s0',0,0,'hop 0','ok','',2000,3000,'{"passages":[0,1,2],"items":[["c47263c7d53508756406dda21d15d49b","p0",1.0,{"page":0},null],["366fdb56260f0a088ffd715afbeccf2a","p1",0.5,{"page":1},null],["1e5106d75103be51da092aedb67d580f","p2",0.3333333333333333,{"page":2},null]]}');
CREATE INDEX runs_live ON runs (owner, due_ns) WHERE owner IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended_ns);
CREATE INDEX scores_of_run ON scores (run);
CREATE INDEX failures_of_run ON failures (run);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',2);
INSERT INTO "sqlite_sequence" VALUES('scores',3);
COMMIT;
PRAGMA application_id = 1380402225;
PRAGMA user_version = 2;
