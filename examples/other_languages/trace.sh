#!/bin/sh
# Sends a trace with curl, as any OpenTelemetry exporter does. `ragguard serve` scores its one retrieval.
#
#     ragguard serve -e nano --settle 0
#     sh examples/other_languages/trace.sh
set -eu
service="${RAGGUARD_URL:-http://127.0.0.1:4318}"
trace="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"

curl -fsS "$service/v1/traces" -H "authorization: Bearer ${RAGGUARD_TOKEN:-}" -H 'content-type: application/json' -d @- <<JSON
{"resourceSpans": [{"scopeSpans": [{"spans": [
  {"traceId": "$trace", "spanId": "00000000000000a1", "name": "ask", "startTimeUnixNano": "1000000000", "endTimeUnixNano": "3000000000",
   "attributes": [{"key": "openinference.span.kind", "value": {"stringValue": "CHAIN"}},
                  {"key": "input.value", "value": {"stringValue": "Who founded Corwell Mills?"}},
                  {"key": "output.value", "value": {"stringValue": "Ursula Almberg"}}]},
  {"traceId": "$trace", "spanId": "00000000000000a2", "parentSpanId": "00000000000000a1", "name": "search",
   "startTimeUnixNano": "1500000000", "endTimeUnixNano": "2000000000",
   "attributes": [{"key": "openinference.span.kind", "value": {"stringValue": "RETRIEVER"}},
                  {"key": "input.value", "value": {"stringValue": "Who founded Corwell Mills?"}},
                  {"key": "retrieval.documents.0.document.content", "value": {"stringValue": "Corwell Mills was founded by Ursula Almberg."}}]}
]}]}]}
JSON
echo
echo "sent the trace $trace"
