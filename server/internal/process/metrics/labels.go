package metrics

import "k8s.io/component-base/metrics"

// named are labels of upstream's metrics whose values tenants choose: names of webhooks, policies and definitions, and issuers. Upstream
// never removes a series.
var named = []string{
	"apiserver_admission_webhook_admission_duration_seconds,name",
	"apiserver_admission_webhook_rejection_count,name",
	"apiserver_admission_webhook_fail_open_count,name",
	"apiserver_admission_webhook_request_total,name",
	"apiserver_admission_match_condition_evaluation_errors_total,name",
	"apiserver_admission_match_condition_exclusions_total,name",
	"apiserver_admission_match_condition_evaluation_seconds,name",
	"apiserver_validating_admission_policy_check_total,policy",
	"apiserver_validating_admission_policy_check_total,policy_binding",
	"apiserver_validating_admission_policy_check_duration_seconds,policy",
	"apiserver_validating_admission_policy_check_duration_seconds,policy_binding",
	"apiserver_mutating_admission_policy_check_total,policy",
	"apiserver_mutating_admission_policy_check_total,policy_binding",
	"apiserver_mutating_admission_policy_check_duration_seconds,policy",
	"apiserver_mutating_admission_policy_check_duration_seconds,policy_binding",
	"apiserver_crd_conversion_webhook_duration_seconds,crd_name",
	"apiserver_authentication_jwt_authenticator_latency_seconds,jwt_issuer_hash",
}

// WithoutNames makes upstream's metrics count all values of labels that tenants name as the value "unexpected". It must be called before
// flags are applied: --allow-metric-labels and its manifest list values that are counted separately. Without either, the flags get the same
// lists, because upstream logs an error for flags without any list.
func WithoutNames(flags *metrics.Options) {
	lists := map[string]string{}
	for _, label := range named {
		lists[label] = ""
	}
	metrics.SetLabelAllowList(lists)
	if flags.AllowListMapping == nil && flags.AllowListMappingManifest == "" {
		flags.AllowListMapping = lists
	}
}
