#!/usr/bin/env bash
# Installs the jars of an Apache Kafka broker into a cache outside the tree, with Maven, if they are not there. The tests and the
# example start brokers from there. Where they cannot be installed it says so and succeeds: the tests are skipped then.
#
# `kafka/broker.sh peer` installs those of Confluent's parallel consumer, too, which the benchmark measures.
set -euo pipefail

kafka=4.2.2 slf4j=2.25.5 peer=0.5.3.3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keyqueue

# install NAME DEPENDENCY...: the jars of these, each `group:artifact:version`.
install() {
    local name=$1 jars=$cache/jars/$1
    [[ ! -e $jars/complete ]] || return 0
    if ! command -v java >/dev/null || ! command -v mvn >/dev/null; then
        echo "there is no java or no mvn: $name is not installed"
        return 0
    fi
    local project
    project=$(mktemp -d)
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>k</groupId><artifactId>k</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
        local group artifact version
        for dependency in "${@:2}"; do
            IFS=: read -r group artifact version <<<"$dependency"
            echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$project/pom.xml"
    mkdir -p "$jars"
    if (cd "$project" && mvn -q -B dependency:copy-dependencies "-DoutputDirectory=$jars" -DincludeScope=runtime); then
        touch "$jars/complete"
    else
        echo "$name cannot be installed"
    fi
    rm -rf "$project"
}

install "kafka-$kafka" "org.apache.kafka:kafka_2.13:$kafka" "org.apache.logging.log4j:log4j-slf4j-impl:$slf4j"
if [[ ${1:-} == peer ]]; then
    install "parallel-consumer-$peer" "io.confluent.parallelconsumer:parallel-consumer-core:$peer" "org.slf4j:slf4j-nop:1.7.36"
fi
