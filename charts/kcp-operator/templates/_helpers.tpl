{{- define "kcp-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "kcp-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "kcp-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kcp-operator.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kcp-operator.selector" -}}
app.kubernetes.io/name: {{ include "kcp-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kcp-operator.labels" -}}
{{ include "kcp-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "kcp-operator.serviceAccount" -}}
{{- default (ternary (include "kcp-operator.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "kcp-operator.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* The rules that the operator's code requires, generated from the comments +kubebuilder:rbac. */ -}}
{{- define "kcp-operator.rules" -}}
{{- range $document := splitList "\n---\n" (printf "\n%s" (.Files.Get "files/rbac/role.yaml")) -}}
{{- $role := fromYaml $document -}}
{{- if eq (default "" $role.kind) "ClusterRole" -}}
{{- toYaml $role.rules -}}
{{- end -}}
{{- end -}}
{{- end -}}
