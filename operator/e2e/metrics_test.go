package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// tokenOf creates a service account, and returns its token.
func tokenOf(t *testing.T, c *operatortest.Cluster, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	c.MustCreate(t, account)
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// D23: the metrics are served to authorized clients, and the operator must be allowed to check that.
func TestMetricsAreServedToAuthorizedClients(t *testing.T) {
	p := newGate(t).start(t)
	p.ready(t)
	admin := cluster(t, host)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reads-metrics"},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: operatortest.Namespace, Name: "prometheus"}}}
	admin.MustCreate(t, role, binding)
	metrics := func(token string, want int) {
		t.Helper()
		kcptest.Eventually(t, fmt.Sprintf("the metrics answer %d", want), func(ctx context.Context) error {
			code, body, err := get(ctx, "https://"+p.metrics+"/metrics", token)
			if err != nil || code != want || want == http.StatusOK && !strings.Contains(body, "controller_runtime_reconcile_total") {
				return fmt.Errorf("%d: %.200s (%w)", code, body, err)
			}
			return nil
		})
	}
	metrics("", http.StatusUnauthorized)
	metrics(tokenOf(t, admin, "unauthorized"), http.StatusForbidden)
	metrics(tokenOf(t, admin, "prometheus"), http.StatusOK)
	p.stop(t)
}

// D7 and D21: errors are counted, and their messages are no labels.
func TestErrorsAreCountedWithoutLabelsForMessages(t *testing.T) {
	p := newGate(t).start(t, "--metrics-secure=false")
	p.ready(t)
	i := &installation{Cluster: cluster(t, host), name: "metrics"}
	rs := shard("metrics")
	rs.Spec.CertificateTemplates = v1alpha1.CertificateTemplateMap{"server": {Metadata: &v1alpha1.Metadata{Labels: map[string]string{"a": "no value of a label"}}}}
	i.MustCreate(t, rs, accessTo("metrics", "metrics"))
	kcptest.Eventually(t, "objects that the API server refuses are reported", func(ctx context.Context) error {
		return says(operatortest.Read(t, i.Cluster, "metrics", rs).Status.Conditions, "Stalled", metav1.ConditionTrue, "ObjectRejected")
	})
	if c := meta.FindStatusCondition(rs.Status.Conditions, "Stalled"); !strings.Contains(c.Message, "metadata.labels") {
		t.Errorf("it says %q", c.Message)
	}
	kcptest.Eventually(t, "errors are counted", func(context.Context) error {
		if n := p.series(t, "controller_runtime_reconcile_errors_total")[`controller="rootshard"`]; n == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	before := p.series(t, "[a-z_]+")
	for series := range before {
		if strings.Contains(series, "no value of a label") {
			t.Errorf("a label has the text of an error: %s", series)
		}
	}
	change(t, i.Cluster, "metrics", rs, func(rs *v1alpha1.RootShard) { rs.Spec.CertificateTemplates = nil })
	kcptest.Eventually(t, "there are metrics of certificates and conditions", func(ctx context.Context) error {
		i.Issue(t)
		expiries, conditions := p.series(t, "kcp_operator_certificate_expiry_timestamp_seconds"), p.series(t, "kcp_operator_condition_status")
		for _, want := range []string{
			`certificate="metrics-server",namespace="team",resource_name="metrics",resource_type="RootShard"`,
			`certificate="kubeconfig-cert-metrics",namespace="team",resource_name="metrics",resource_type="Kubeconfig"`,
		} {
			if expiries[want] != float64(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Unix()) {
				return fmt.Errorf("%s ends at %v", want, expiries[want])
			}
		}
		if value, told := conditions[`condition_type="Ready",namespace="team",resource_name="metrics",resource_type="RootShard"`]; !told || value != 0 {
			return fmt.Errorf("Ready is %v", value)
		}
		return nil
	})
	changeStatus(t, i.Cluster, "metrics-server", &certmanager.Certificate{}, func(c *certmanager.Certificate) {
		c.Status.RenewalTime = new(metav1.NewTime(time.Unix(1892851200, 0)))
	})
	kcptest.Eventually(t, "the renewal time of the certificate changes", func(context.Context) error {
		renewals := p.series(t, "kcp_operator_certificate_renewal_timestamp_seconds")
		if at := renewals[`certificate="metrics-server",namespace="team",resource_name="metrics",resource_type="RootShard"`]; at != 1892851200 {
			return fmt.Errorf("that is %v", renewals)
		}
		return nil
	})
	change(t, i.Cluster, "metrics", rs, func(rs *v1alpha1.RootShard) { rs.Spec.Replicas = new(int32(0)) })
	kcptest.Eventually(t, "the metric for scaled-to-zero is 1", func(context.Context) error {
		i.Issue(t)
		off := p.series(t, "kcp_operator_scaled_to_zero")
		if off[`namespace="team",resource_name="metrics",resource_type="RootShard"`] != 1 {
			return fmt.Errorf("that is %v", off)
		}
		return nil
	})
	p.showsDashboard(t)
	rules, err := os.ReadFile(filepath.Join(root, "config/prometheus/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range regexp.MustCompile(`(kcp_operator|controller_runtime)_[a-z_]+`).FindAllString(string(rules), -1) {
		if len(p.series(t, metric)) == 0 {
			t.Errorf("alerts are on %s, which there is not", metric)
		}
	}
	if err := i.Delete(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "there are no metrics of deleted objects", func(context.Context) error {
		for series := range p.series(t, "kcp_operator_condition_status") {
			if strings.Contains(series, `resource_name="metrics",resource_type="RootShard"`) {
				return errors.New(series)
			}
		}
		return nil
	})
	p.stop(t)
}

// showsDashboard checks that the operator has the metrics, with their labels, of its dashboard in config/grafana. The file is written by
// test/prometheus.
func (p *process) showsDashboard(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "test/prometheus/testdata/dashboards.txt"))
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for _, found := range regexp.MustCompile(`(?m)^operator (\w+)(?:\{(.*)\})?$`).FindAllStringSubmatch(string(content), -1) {
		used++
		complete := false
		for series := range p.series(t, found[1]) {
			complete = complete || !slices.ContainsFunc(strings.Split(found[2], ","), func(label string) bool {
				return label != "" && !strings.Contains(","+series, ","+label+"=")
			})
		}
		if !complete {
			t.Errorf("the dashboard uses %s with the labels %s, which there is not", found[1], found[2])
		}
	}
	if used == 0 {
		t.Error("the dashboard uses no metrics")
	}
}
