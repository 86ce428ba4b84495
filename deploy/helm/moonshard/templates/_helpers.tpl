{{/* Releases may have dots in their names, services may not. */}}
{{- define "moonshard.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "moonshard.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "moonshard.labels" -}}
{{ include "moonshard.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Name, labels and annotations of an object; component, labels and annotations of its own may be missing. */}}
{{- define "moonshard.metadata" -}}
name: {{ .name }}
labels:
  {{- include "moonshard.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with merge (dict) (default dict .labels) .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default dict .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "moonshard.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end -}}
{{- end -}}

{{- define "moonshard.serviceAccount" -}}
{{- default (include "moonshard.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "moonshard.tokenSecret" -}}
{{- default (printf "%s-cluster" (include "moonshard.fullname" .)) .Values.clusterToken.existingSecret -}}
{{- end -}}

{{/* The secret with certificate, key and root; nothing without TLS. */}}
{{- define "moonshard.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- default (printf "%s-tls" (include "moonshard.fullname" .)) .Values.tls.existingSecret -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* Whether a listener uses TLS. Its argument is the root and the listener. */}}
{{- define "moonshard.speaksTls" -}}
{{- if and (include "moonshard.tlsSecret" .root) (has .listener .root.Values.tls.listeners) -}}yes{{- end -}}
{{- end -}}

{{/* What clients connect to: the one process, or the gateways. */}}
{{- define "moonshard.frontend" -}}
{{- ternary "embedded" "gateway" (eq .Values.mode "embedded") -}}
{{- end -}}

{{/* How a store node is known; its argument is the root and a number. */}}
{{- define "moonshard.storeAddress" -}}
{{- $name := printf "%s-store" (include "moonshard.fullname" .root) -}}
{{- printf "%s-%d.%s.%s.svc:7101" $name (int .number) $name .root.Release.Namespace -}}
{{- end -}}

{{/* The nodes that founded the cluster, which everybody names in this order. */}}
{{- define "moonshard.stores" -}}
{{- $root := . -}}
{{- $founders := int (default .Values.store.replicas .Values.store.founders) -}}
{{- if gt $founders (int .Values.store.replicas) -}}
{{- fail (printf "store.founders is %d, but store.replicas only %d" $founders (int .Values.store.replicas)) -}}
{{- end -}}
{{- $stores := list -}}
{{- range $number := until $founders -}}
{{- $stores = append $stores (include "moonshard.storeAddress" (dict "root" $root "number" $number)) -}}
{{- end -}}
{{- join "," $stores -}}
{{- end -}}

{{/* Whether a component consists of store nodes with replicas. Its argument is the root and the component. */}}
{{- define "moonshard.isReplicated" -}}
{{- if and (eq .root.Values.mode "distributed") (eq .component "store") (gt (int .root.Values.store.replication.replicas) 1) -}}yes{{- end -}}
{{- end -}}

{{/* Fails if store nodes cannot have the replicas that they are to have. */}}
{{- define "moonshard.checkReplication" -}}
{{- $store := .Values.store -}}
{{- $replicas := int $store.replication.replicas -}}
{{- if include "moonshard.isReplicated" (dict "root" . "component" "store") -}}
{{- if lt (int $store.replicas) $replicas -}}
{{- fail (printf "store.replication.replicas is %d, and needs as many store nodes, but store.replicas is %d" $replicas (int $store.replicas)) -}}
{{- end -}}
{{- if not $store.persistence.enabled -}}
{{- fail "store.replication.replicas requires store.persistence.enabled: a node that restarts without its data needs a copy of all of it" -}}
{{- end -}}
{{- if or (not $store.pdb.enabled) (ne (toString $store.pdb.maxUnavailable) "1") -}}
{{- fail "store.replication.replicas requires store.pdb.enabled and store.pdb.maxUnavailable 1: groups need a majority of their replicas" -}}
{{- end -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add .Values.drainSeconds 25 | int) -}}
{{- fail "terminationGracePeriodSeconds must be at least 25 more than drainSeconds, so that store nodes can hand over what they lead" -}}
{{- end -}}
{{- range list .Values.config $store.config -}}
{{- if ne (get . "durability" | default "sync") "sync" -}}
{{- fail "store.replication.replicas requires durability sync" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Nodes that have served without replicas have data, and nodes with replicas have it elsewhere. */ -}}
{{- $file := dig "data" "moonshard.toml" "" (lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-store" (include "moonshard.fullname" .)) | default dict) -}}
{{- if and $file (eq .Values.mode "distributed") (ne (contains "replicated = \"yes\"" $file) (gt $replicas 1)) -}}
{{- fail "store.replication.replicas cannot change from 1 or to 1: install another release, and load a dump of the data there" -}}
{{- end -}}
{{- end -}}

{{/* Names that HTTP requests may call the server by. */}}
{{- define "moonshard.httpHosts" -}}
{{- $name := include "moonshard.fullname" . -}}
{{- $in := printf "%s.%s" $name .Release.Namespace -}}
{{- concat (list $name $in (printf "%s.svc" $in) (printf "%s.svc.cluster.local" $in)) .Values.httpHosts | join "," -}}
{{- end -}}

{{/* Those, and the names by which requests come from outside. */}}
{{- define "moonshard.allHosts" -}}
{{- $hosts := splitList "," (include "moonshard.httpHosts" .) -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = append $hosts .Values.ingress.host -}}
{{- end -}}
{{- if .Values.httpRoute.enabled -}}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames -}}
{{- end -}}
{{- $hosts | uniq | join "," -}}
{{- end -}}

{{/* A size of a config file in bytes. */}}
{{- define "moonshard.bytes" -}}
{{- $unit := regexFind "[a-z]*$" (lower .) -}}
{{- $factors := dict "k" 1000 "kb" 1024 "m" 1000000 "mb" 1048576 "g" 1000000000 "gb" 1073741824 -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get $factors $unit | default 1) -}}
{{- end -}}

{{/* Fails if a limit of scripts exceeds the most that a script may ask for: the server would not start. Its argument is the config. */}}
{{- define "moonshard.checkLimits" -}}
{{- $config := . -}}
{{- $limits := list (list "script-fuel" "100000000000" "script-fuel-max" "200000000000") -}}
{{- $limits = append $limits (list "script-timeout-ms" "5000" "script-timeout-max-ms" "60000") -}}
{{- $limits = append $limits (list "script-memory" "64mb" "script-memory-max" "256mb") -}}
{{- range $limits -}}
{{- $bytes := list -}}
{{- range list (list (index . 0) (index . 1)) (list (index . 2) (index . 3)) -}}
{{- $value := get $config (first .) | default (last .) -}}
{{- $bytes = append $bytes (include "moonshard.bytes" (ternary $value (printf "%d" (int64 $value)) (kindIs "string" $value)) | int64) -}}
{{- end -}}
{{- if gt (first $bytes) (last $bytes) -}}
{{- fail (printf "config.%s exceeds %s: lower one or raise the other" (index . 0) (index . 2)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The config file of a component: what the chart sets, then what everybody and what the component is to have. */}}
{{- define "moonshard.config" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $own := index $values .component -}}
{{- $config := dict -}}
{{- if eq .component "store" -}}
{{- $config = dict "grpc" "0.0.0.0:7101" "http" "0.0.0.0:8080" "cluster-token-file" "/run/moonshard/cluster-token" -}}
{{- else -}}
{{- $config = dict "resp" "0.0.0.0:6379" "http" "0.0.0.0:8080" "grpc" "0.0.0.0:50051" "http-hosts" (include "moonshard.allHosts" $root) -}}
{{- end -}}
{{- if eq .component "gateway" -}}
{{- $_ := set $config "stores" (include "moonshard.stores" $root) -}}
{{- $_ := set $config "cluster-token-file" "/run/moonshard/cluster-token" -}}
{{- else -}}
{{- $_ := set $config "data-dir" (ternary "/data" "none" $own.persistence.enabled) -}}
{{- end -}}
{{- if include "moonshard.isReplicated" . -}}
{{- /* Gateways start before the cluster is founded. */ -}}
{{- $_ := set $config "replicated" "yes" -}}
{{- $_ := set $config "durability" "sync" -}}
{{- end -}}
{{- if include "moonshard.tlsSecret" $root -}}
{{- if and (has "http" $values.tls.listeners) (eq $values.tls.authClients "yes") -}}
{{- fail "tls.authClients is yes, but probes have no client certificate: remove http from tls.listeners" -}}
{{- end -}}
{{- $_ := set $config "tls-cert-file" "/run/moonshard-tls/tls.crt" -}}
{{- $_ := set $config "tls-key-file" "/run/moonshard-tls/tls.key" -}}
{{- $_ := set $config "tls-ca-cert-file" "/run/moonshard-tls/ca.crt" -}}
{{- if eq .component "store" -}}
{{- /* Gateways must show a certificate at grpc; probes have none, and http asks for none. */ -}}
{{- $_ := set $config "tls-listeners" (ternary "http,grpc" "grpc" (has "http" $values.tls.listeners)) -}}
{{- else -}}
{{- $_ := set $config "tls-listeners" (join "," $values.tls.listeners) -}}
{{- $_ := set $config "tls-auth-clients" $values.tls.authClients -}}
{{- end -}}
{{- if eq .component "gateway" -}}
{{- $_ := set $config "tls-stores" "yes" -}}
{{- end -}}
{{- end -}}
{{- if and $values.auth.existingSecret (ne .component "store") -}}
{{- $_ := set $config "requirepass-file" "/run/moonshard-auth/password" -}}
{{- else if ne .component "store" -}}
{{- /* All connections to a pod come from other machines; the network policy restricts them. */ -}}
{{- $_ := set $config "protected-mode" "no" -}}
{{- end -}}
{{- if and $values.auth.aclFile.existingSecret (ne .component "store") -}}
{{- $_ := set $config "aclfile" "/run/moonshard-acl/users.acl" -}}
{{- end -}}
{{- $config = mergeOverwrite $config (deepCopy $values.config) (deepCopy $own.config) -}}
{{- include "moonshard.checkLimits" $config -}}
{{- $lines := list -}}
{{- range $name, $value := $config -}}
{{- /* Large whole numbers come as fractions, too, and would be written with an exponent. */ -}}
{{- $whole := and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- $lines = append $lines (printf "%s = %s" $name (ternary (printf "%d" (int64 $value)) (toJson $value) $whole)) -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{/* Everything of a pod. Its argument is the root and the component: embedded, gateway or store. */}}
{{- define "moonshard.pod" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $own := index $values .component -}}
{{- $token := ne .component "embedded" -}}
{{- if lt (int $values.terminationGracePeriodSeconds) (add $values.drainSeconds 10 | int) -}}
{{- fail "terminationGracePeriodSeconds must be at least ten more than drainSeconds, so that pending requests are not interrupted" -}}
{{- end -}}
metadata:
  annotations:
    checksum/config: {{ include "moonshard.config" . | sha256sum }}
    {{- if and $token (not $values.clusterToken.existingSecret) $values.clusterToken.value }}
    checksum/token: {{ $values.clusterToken.value | sha256sum }}
    {{- end }}
    {{- with $own.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "moonshard.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with merge (dict) $own.podLabels $values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "moonshard.serviceAccount" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $own.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $replicated := include "moonshard.isReplicated" . }}
  {{- if $own.affinity }}
  affinity:
    {{- toYaml $own.affinity | nindent 4 }}
  {{- else if $replicated }}
  affinity:
    podAntiAffinity:
      # A Kubernetes node that is lost takes one replica of a group with it.
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "moonshard.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ .component }}
  {{- end }}
  {{- $component := .component }}
  {{- $zones := "" }}
  {{- if $replicated }}
  {{- $zones = $own.replication.zones }}
  {{- end }}
  {{- $spread := list }}
  {{- with $zones }}
  {{- $spread = append $spread (dict "key" . "otherwise" "DoNotSchedule") }}
  {{- end }}
  {{- if $values.topologySpread.enabled }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  {{- if ne . $zones }}
  {{- $spread = append $spread (dict "key" . "otherwise" $values.topologySpread.whenUnsatisfiable) }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- with $spread }}
  topologySpreadConstraints:
    {{- range . }}
    - maxSkew: 1
      topologyKey: {{ .key }}
      whenUnsatisfiable: {{ .otherwise }}
      labelSelector:
        matchLabels:
          {{- include "moonshard.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $component }}
    {{- end }}
  {{- end }}
  {{- with concat $values.initContainers $own.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: moonshard
      image: {{ include "moonshard.image" $root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [{{ ternary "serve" .component (eq .component "embedded") }}, --config, /etc/moonshard/moonshard.toml]
      {{- $env := $values.extraEnv }}
      {{- with $zones }}
      # Kubernetes gives pods the labels of their node from 1.35 on; the variable is empty before, which is as good as none.
      {{- $field := dict "fieldPath" (printf "metadata.labels['%s']" .) }}
      {{- $env = prepend $env (dict "name" "MOONSHARD_ZONE" "valueFrom" (dict "fieldRef" $field)) }}
      {{- end }}
      {{- with $env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if eq .component "store" }}
        - {name: grpc, containerPort: 7101}
        - {name: http, containerPort: 8080}
        {{- else }}
        - {name: resp, containerPort: 6379}
        - {name: http, containerPort: 8080}
        - {name: grpc, containerPort: 50051}
        {{- end }}
      {{- $scheme := ternary "HTTPS" "HTTP" (eq (include "moonshard.speaksTls" (dict "root" $root "listener" "http")) "yes") }}
      {{- $live := dict "httpGet" (dict "path" "/healthz" "port" "http" "scheme" $scheme) }}
      {{- $ready := dict "httpGet" (dict "path" "/readyz" "port" "http" "scheme" $scheme) }}
      startupProbe:
        {{- toYaml $live | nindent 8 }}
        periodSeconds: 2
        failureThreshold: {{ div (add $values.startupSeconds 1) 2 }}
      livenessProbe:
        {{- toYaml $live | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        {{- toYaml $ready | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 2
      {{- if gt (int $values.drainSeconds) 0 }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ $values.drainSeconds }}}
      {{- end }}
      resources:
        {{- toYaml $own.resources | nindent 8 }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/moonshard, readOnly: true}
        {{- if $token }}
        - {name: token, mountPath: /run/moonshard, readOnly: true}
        {{- end }}
        {{- if include "moonshard.tlsSecret" $root }}
        - {name: tls, mountPath: /run/moonshard-tls, readOnly: true}
        {{- end }}
        {{- if and $values.auth.existingSecret (ne .component "store") }}
        - {name: auth, mountPath: /run/moonshard-auth, readOnly: true}
        {{- end }}
        {{- if and $values.auth.aclFile.existingSecret (ne .component "store") }}
        - {name: acl, mountPath: /run/moonshard-acl, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        {{- if and (ne .component "gateway") $own.persistence.enabled }}
        - {name: data, mountPath: /data}
        {{- end }}
        {{- with concat $values.extraVolumeMounts $own.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with concat $values.sidecars $own.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "moonshard.fullname" $root }}-{{ .component }}
    {{- if $token }}
    - name: token
      secret:
        secretName: {{ include "moonshard.tokenSecret" $root }}
        defaultMode: 0440
        items: [{key: {{ $values.clusterToken.key }}, path: cluster-token}]
    {{- end }}
    {{- with include "moonshard.tlsSecret" $root }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- if and $values.auth.existingSecret (ne .component "store") }}
    - name: auth
      secret:
        secretName: {{ $values.auth.existingSecret }}
        defaultMode: 0440
        items: [{key: {{ $values.auth.key }}, path: password}]
    {{- end }}
    {{- if and $values.auth.aclFile.existingSecret (ne .component "store") }}
    - name: acl
      secret:
        secretName: {{ $values.auth.aclFile.existingSecret }}
        defaultMode: 0440
        items: [{key: {{ $values.auth.aclFile.key }}, path: users.acl}]
    {{- end }}
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- with dig "persistence" "existingClaim" "" $own }}
    - name: data
      persistentVolumeClaim: {claimName: {{ . }}}
    {{- end }}
    {{- with concat $values.extraVolumes $own.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* The volume of a StatefulSet, and what becomes of it. */}}
{{- define "moonshard.volume" -}}
{{- if and .persistence.existingClaim (not .persistence.enabled) -}}
{{- fail "embedded.persistence.existingClaim requires embedded.persistence.enabled" -}}
{{- end -}}
{{- if and .persistence.enabled (not .persistence.existingClaim) -}}
persistentVolumeClaimRetentionPolicy:
  whenDeleted: {{ .persistence.whenDeleted }}
  whenScaled: {{ default "Retain" .persistence.whenScaled }}
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: data
      {{- with .persistence.labels }}
      labels:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .persistence.annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      accessModes:
        {{- toYaml .persistence.accessModes | nindent 8 }}
      {{- with .persistence.storageClass }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .persistence.size }}
{{- end }}
{{- end -}}

{{/* A pod of a job that runs `moonshard topology` several times, one after the other. Its argument is the root, the component and
the steps, each with a name and words. */}}
{{- define "moonshard.topologyPod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "moonshard.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ include "moonshard.serviceAccount" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with initial .steps }}
  # One after the other.
  initContainers:
    {{- range . }}
    - name: {{ .name }}
      {{- include "moonshard.topology" (dict "root" $root "words" .words) }}
    {{- end }}
  {{- end }}
  containers:
    {{- with last .steps }}
    - name: {{ .name }}
      {{- include "moonshard.topology" (dict "root" $root "words" .words) }}
    {{- end }}
  volumes:
    - name: token
      secret:
        secretName: {{ include "moonshard.tokenSecret" $root }}
        defaultMode: 0440
        items: [{key: {{ $root.Values.clusterToken.key }}, path: cluster-token}]
    {{- with include "moonshard.tlsSecret" $root }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
{{- end -}}

{{/* A container that runs `moonshard topology` with these words. */}}
{{- define "moonshard.topology" }}
      image: {{ include "moonshard.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        - topology
        - --stores={{ include "moonshard.stores" .root }}
        - --cluster-token-file=/run/moonshard/cluster-token
        {{- range .words }}
        - {{ . }}
        {{- end }}
      resources:
        requests: {cpu: 50m, memory: 64Mi}
        limits: {memory: 256Mi}
      securityContext:
        {{- toYaml .root.Values.securityContext | nindent 8 }}
      {{- if include "moonshard.tlsSecret" .root }}
      env:
        - {name: MOONSHARD_TLS_STORES, value: "yes"}
        - {name: MOONSHARD_TLS_CERT_FILE, value: /run/moonshard-tls/tls.crt}
        - {name: MOONSHARD_TLS_KEY_FILE, value: /run/moonshard-tls/tls.key}
        - {name: MOONSHARD_TLS_CA_CERT_FILE, value: /run/moonshard-tls/ca.crt}
      {{- end }}
      volumeMounts:
        - {name: token, mountPath: /run/moonshard, readOnly: true}
        {{- if include "moonshard.tlsSecret" .root }}
        - {name: tls, mountPath: /run/moonshard-tls, readOnly: true}
        {{- end }}
{{- end }}
