{{/* Names, labels, images and addresses: what every object, and whoever drives the chart from outside, goes by. */}}

{{/* <release>-<component>; takes (list . component). */}}
{{- define "agentdyno.name" -}}
{{- $top := index . 0 -}}
{{- printf "%s-%s" $top.Release.Name (index . 1) -}}
{{- end -}}

{{- define "agentdyno.selector" -}}
{{- $top := index . 0 -}}
app.kubernetes.io/name: agentdyno
app.kubernetes.io/instance: {{ $top.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "agentdyno.labels" -}}
{{- $top := index . 0 -}}
{{ include "agentdyno.selector" . }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version }}
{{- end -}}

{{/* The backend, by the word that the rig has for it. */}}
{{- define "agentdyno.backendKind" -}}
{{- if eq .Values.backend.kind "url" }}openai{{ else }}{{ .Values.backend.kind }}{{ end -}}
{{- end -}}

{{/* What a pod of a run also carries. */}}
{{- define "agentdyno.runLabels" -}}
agentdyno.io/framework: {{ .Values.framework | quote }}
agentdyno.io/run: {{ .Values.run.id | quote }}
agentdyno.io/scenario: {{ .Values.run.scenario }}
agentdyno.io/backend: {{ include "agentdyno.backendKind" . }}
{{- if and .Values.run.compared (not .Values.run.heapProfile) }}
agentdyno.io/compared: "yes"
agentdyno.io/rate: {{ float64 .Values.load.rate | toJson | quote }}
{{- else }}
agentdyno.io/compared: "no"
{{- end }}
{{- end -}}

{{/* The adapter's folder. */}}
{{- define "agentdyno.adapter" -}}
{{- $known := (.Files.Get "files/frameworks.yaml" | fromYaml) -}}
{{- if .Values.adapter -}}
{{- .Values.adapter -}}
{{- else if hasKey $known .Values.framework -}}
{{- (index $known .Values.framework).adapter -}}
{{- else -}}
{{- fail (printf "There is no framework %q; there are %s. For an adapter of your own set `adapter` to its folder." .Values.framework (keys $known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}

{{/* An image of others: (list . image). A digest wins over the tag. */}}
{{- define "agentdyno.foreignImage" -}}
{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- if $image.registry -}}{{- $name = printf "%s/%s" $image.registry $name -}}{{- end -}}
{{- if $image.digest -}}{{- printf "%s@%s" $name $image.digest -}}{{- else -}}{{- printf "%s:%s" $name $image.tag -}}{{- end -}}
{{- end -}}

{{/* One of ours: (list . "rig"). The host's is named after the adapter's folder. */}}
{{- define "agentdyno.image" -}}
{{- $top := index . 0 -}}
{{- $image := index $top.Values.image (index . 1) -}}
{{- $name := $image.repository -}}
{{- if eq (index . 1) "host" -}}{{- $name = printf "%s-%s" $name (include "agentdyno.adapter" $top) -}}{{- end -}}
{{- $tag := $image.tag | default $top.Values.image.tag | default $top.Chart.AppVersion -}}
{{- include "agentdyno.foreignImage" (list $top (dict "registry" $top.Values.image.registry "repository" $name "tag" $tag "digest" $image.digest)) -}}
{{- end -}}

{{- define "agentdyno.backendUrl" -}}
{{- if eq .Values.backend.kind "url" -}}
{{- .Values.backend.url.address -}}
{{- else -}}
{{- printf "http://%s:%v/v1" (include "agentdyno.name" (list . "backend")) (int64 .Values.backend.port) -}}
{{- end -}}
{{- end -}}

{{- define "agentdyno.proofSecret" -}}
{{- .Values.proof.existingSecret | default (include "agentdyno.name" (list . "proof")) -}}
{{- end -}}

{{- define "agentdyno.recorderAddress" -}}
{{- printf "%s:4319" (include "agentdyno.name" (list . "recorder")) -}}
{{- end -}}

{{/* Where the recorder exports to; empty: nowhere. */}}
{{- define "agentdyno.otlpEndpoint" -}}
{{- if .Values.collector.enabled -}}
{{- printf "http://%s:4318" (include "agentdyno.name" (list . "collector")) -}}
{{- else -}}
{{- .Values.collector.endpoint -}}
{{- end -}}
{{- end -}}

{{- define "agentdyno.tempoEndpoint" -}}
{{- if .Values.tempo.enabled -}}
{{- printf "%s:4317" (include "agentdyno.name" (list . "tempo")) -}}
{{- else -}}
{{- .Values.collector.tempoEndpoint -}}
{{- end -}}
{{- end -}}

{{/* The workload as the host and the manifest know it (contract/scenario.py); null is left out. */}}
{{- define "agentdyno.timing" -}}
{{- $timing := dict -}}
{{- range $name, $value := .Values.run.timing -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $timing $name $value -}}{{- end -}}
{{- end -}}
{{- $timing | toJson -}}
{{- end -}}

{{- define "agentdyno.workload" -}}
{{- dict "scenario" .Values.run.scenario "seed" .Values.run.seed "timing" (include "agentdyno.timing" . | fromJson) | toJson -}}
{{- end -}}

{{/* Every digit and no exponent; --set hands a number with a decimal point over as text. */}}
{{- define "agentdyno.number" -}}
{{- if kindIs "string" . -}}{{- . -}}{{- else -}}{{- . | toJson -}}{{- end -}}
{{- end -}}

{{- define "agentdyno.workers" -}}
{{- if .Values.load.workers -}}
{{- int64 .Values.load.workers -}}
{{- else -}}
{{- max 1 (ceil (divf .Values.load.rate .Values.load.ratePerWorker) | int64) -}}
{{- end -}}
{{- end -}}

{{/* "true" where a kind of another operator is wanted: (list . setting "monitoring.coreos.com/v1/ServiceMonitor"). */}}
{{- define "agentdyno.wanted" -}}
{{- $top := index . 0 -}}
{{- $setting := index . 1 -}}
{{- if eq $setting "auto" -}}
{{- ternary "true" "" ($top.Capabilities.APIVersions.Has (index . 2)) -}}
{{- else if eq $setting "on" -}}
true
{{- end -}}
{{- end -}}
