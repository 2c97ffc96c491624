BEGIN TRANSACTION;
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
INSERT INTO "failures" VALUES(1,1,'x','guarded-s1','coverage','EngineTimeout','no answer within 30 s',1,2,1700000000050000000);
INSERT INTO "failures" VALUES(2,2,'x','failed-s0','belief','NothingRetrieved','no passages',0,1,1700000000003000000);
CREATE TABLE leases (
        owner TEXT PRIMARY KEY,
        place TEXT NOT NULL,
        pid INTEGER NOT NULL,
        born TEXT NOT NULL,
        expires_ns INTEGER NOT NULL
    ) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE names (
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        run INTEGER NOT NULL,
        part INTEGER NOT NULL DEFAULT 0,
        steps INTEGER NOT NULL DEFAULT 0,
        turns INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (name, kind, run)
    ) WITHOUT ROWID;
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
INSERT INTO "origins" VALUES(1,'utility','1-0123abcd','reader/first_token','default/1','','none');
INSERT INTO "origins" VALUES(2,'belief','1-89abcdef','reader/first_token','default/1','5f0c7ab8','gold');
INSERT INTO "origins" VALUES(3,'belief','1-89abcdef','reader/first_token','default/1','5f0c7ab8','answer');
INSERT INTO "origins" VALUES(4,'coverage','1-7654dcba','judge/sequence','default/1','','none');
CREATE TABLE passage_uses (digest BLOB PRIMARY KEY, uses INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "passage_uses" VALUES(X'325B2B5BF2A8CE1F696A961FB1301279',1);
INSERT INTO "passage_uses" VALUES(X'D76941D7107121A90DFAD350CB62A193',1);
INSERT INTO "passage_uses" VALUES(X'F4A1FB44FE15ACC67198E2BEDE3402DB',2);
CREATE TABLE passages (digest BLOB PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO "passages" VALUES(X'325B2B5BF2A8CE1F696A961FB1301279','Buy <b>now</b> – “today” only, Zoë!');
INSERT INTO "passages" VALUES(X'52F4431770BBBFEAA5B8A9DBF3829D8D','Ada Berg founded Norvik Mills.');
INSERT INTO "passages" VALUES(X'8881E9F18D2F16E6DFBD0F9CDDB2AA88','Velara Works is based in Bergen.');
INSERT INTO "passages" VALUES(X'F4A1FB44FE15ACC67198E2BEDE3402DB','Norvik Mills is based in Oslo.');
INSERT INTO "passages" VALUES(X'D76941D7107121A90DFAD350CB62A193','Oslo is a city.');
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
INSERT INTO "runs" VALUES(1,'guarded','agent','Who founded the firm based in Oslo?','Ada Berg','ok',1700000000000000000,1700000000030000000,'{"references":["Ada Berg","A. Berg"],"metadata":{"user":7,"session":"s-1"},"sub_questions":["Which firm is based in Oslo?","Who founded it?"],"pool":[0,1],"trace":{"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"00f067aa0ba902b7"},"items":[["f4a1fb44fe15acc67198e2bede3402db","p1",null,{},5],["325b2b5bf2a8ce1f696a961fb1301279","p3",null,{},1]]}',1,NULL,NULL,NULL,NULL,1);
INSERT INTO "runs" VALUES(2,'failed','','Is it raining?',NULL,'error',1700000000000000000,1700000000002000000,'{}',1,NULL,NULL,NULL,NULL,1);
INSERT INTO "runs" VALUES(3,'empty','','hello?','','ok',1700000000000000000,1700000000001000000,'{"references":[]}',1,NULL,NULL,NULL,NULL,1);
INSERT INTO "runs" VALUES(4,'parallel','','Which is a city?','Oslo','interrupted',1700000000000000000,1700000000010000000,'{}',1,NULL,NULL,NULL,NULL,1);
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
INSERT INTO "scores" VALUES(1,1,X'C8082C6140EC5FCF4B795E6BCC0F4329','p_relevant',0.875,'passage','guarded-s0','p1',1,'passages',NULL,NULL,NULL,'','',1,'','');
INSERT INTO "scores" VALUES(2,1,X'1891EC463B2FD982118526524FBCEFA0','p_relevant',0.25,'passage','guarded-s0','p2',2,'passages',NULL,NULL,NULL,'','',1,'','');
INSERT INTO "scores" VALUES(3,1,X'91AB17192E4AF7289625D93F1CC8C6D3','utility',-0.8,'passage','guarded-s0','p3',3,'candidates',NULL,NULL,NULL,'','',1,'','');
INSERT INTO "scores" VALUES(4,1,X'19CC7A7E210537E73F490EB6BFE94618','udcg',0.61,'step','guarded-s0','',NULL,'passages',NULL,0.02,NULL,'','two of three',1,'[1,3,300,3,0.25,1]','');
INSERT INTO "scores" VALUES(5,1,X'06A56E260BF8B86D80D8A60A630F40A0','delta_seper',0.4,'step','guarded-s0','',NULL,'passages',NULL,NULL,NULL,'','',2,'','{"context_tokens":40}');
INSERT INTO "scores" VALUES(6,1,X'394390D9EEF075D6991A77BD3415C37B','delta_seper',0.1,'step','guarded-s1','',NULL,'passages',NULL,NULL,NULL,'','',3,'','');
INSERT INTO "scores" VALUES(7,1,X'12487C0BDFC67410BDCAA29830FAEB4B','answerability',5.0,'passage','guarded-s1','p4',1,'passages',1,NULL,4.75,'','',4,'','');
INSERT INTO "scores" VALUES(8,1,X'4792090C824E867548CEAAC3623E9659','answer_correct',1.0,'run','','',NULL,'passages',NULL,NULL,NULL,'correct','',2,'','');
INSERT INTO "scores" VALUES(9,4,X'39D14FDA51F5FF58E0A4EFE7399984D0','harm',0.0,'step','parallel-s0','',NULL,'passages',NULL,NULL,NULL,'','',1,'','');
INSERT INTO "scores" VALUES(10,4,X'E593E29848C6642E6B87C68622D7D702','harm',0.0,'step','parallel-s1','',NULL,'passages',NULL,NULL,NULL,'','',1,'','');
CREATE TABLE scorings (
        run INTEGER NOT NULL,
        identity TEXT NOT NULL,
        revision INTEGER NOT NULL,
        finished INTEGER NOT NULL,
        PRIMARY KEY (run, identity)
    ) WITHOUT ROWID;
INSERT INTO "scorings" VALUES(1,'x',1,1);
INSERT INTO "scorings" VALUES(2,'x',1,1);
INSERT INTO "scorings" VALUES(3,'x',1,1);
INSERT INTO "scorings" VALUES(4,'x',1,1);
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
        k INTEGER,
        UNIQUE (run, id)
    );
INSERT INTO "steps" VALUES(1,1,'guarded-s0',0,0,'firm based in Oslo','ok','search',1700000000001000000,1700000000005000000,'{"passages":[0,1],"candidates":[0,1,2],"sub_steps":[["firm Oslo",[0,2],"dense",1700000000001000000,1700000000002000000,"ok"],["Oslo company",[1],"sparse",1700000000002000000,1700000000004000000,"error"]],"decision":{"status":"pruned","elapsed_ms":2.5,"reason":"UtilityThreshold","engine":"reader/first_token","started_ns":1700000000004000000,"kept":[0,1],"dropped":[[2,3,"utility -0.80 < -0.20",-0.8,0.1,0.05]]},"trace":{"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331"},"metadata":{"k":3,"retriever":"VectorStoreRetriever"},"items":[["f4a1fb44fe15acc67198e2bede3402db","p1",0.91,{"page":3,"gold":true},null],["8881e9f18d2f16e6dfbd0f9cddb2aa88","p2",0.72,{},null],["325b2b5bf2a8ce1f696a961fb1301279","p3",-1.5,{},1]]}',NULL);
INSERT INTO "steps" VALUES(2,1,'guarded-s1',1,1,'founder of Norvik Mills','ok','',1700000000010000000,1700000000012000000,'{"passages":[0,1],"items":[["52f4431770bbbfeaa5b8a9dbf3829d8d","p4",null,{"tags":["a",null],"at":{"x":1.5}},null],["f4a1fb44fe15acc67198e2bede3402db","p1",0.91,{"page":3,"gold":true},null]]}',NULL);
INSERT INTO "steps" VALUES(3,2,'failed-s0',0,0,'the weather','error','weather',1700000000000000000,1700000000001000000,'{"passages":[],"error":"ConnectionError: refused"}',NULL);
INSERT INTO "steps" VALUES(4,4,'parallel-s0',0,0,'Oslo','ok','wiki',1700000000000000000,1700000000009000000,'{"passages":[0],"items":[["d76941d7107121a90dfad350cb62a193","0",null,{},null]]}',NULL);
INSERT INTO "steps" VALUES(5,4,'parallel-s1',1,0,'Bergen','ok','wiki',1700000000001000000,1700000000009000000,'{"passages":[0],"items":[["d76941d7107121a90dfad350cb62a193","1",null,{},null]]}',NULL);
CREATE INDEX names_of_run ON names (run);
CREATE INDEX runs_live ON runs (owner, due_ns) WHERE owner IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended_ns);
CREATE INDEX scores_of_run ON scores (run);
CREATE INDEX failures_of_run ON failures (run);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',4);
INSERT INTO "sqlite_sequence" VALUES('scores',10);
COMMIT;
PRAGMA application_id = 1380402225;
PRAGMA user_version = 5;
