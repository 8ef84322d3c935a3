// Command certmanager is cert-manager: its controller, webhook and CA injector. The first argument selects one of them. cert-manager's
// commands are not in a module that go.mod can require, so this command starts their packages, with the self-signed and the CA issuers
// only. Its module path is below that of cert-manager because some of these packages are internal.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/webhook"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/util"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"

	// Each import registers a controller or an issuer.
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

var parts = map[string]func(context.Context, []string) error{
	"cainjector": runInjector,
	"controller": runController,
	"webhook":    runWebhook,
}

func main() {
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: %s cainjector|controller|webhook [flags]\n", os.Args[0])
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(klog.Background())
	if err := parts[os.Args[1]](ctx, os.Args[2:]); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// flagsOf returns flags that ignore unknown flags: the chart also sets some for features that are not used here, such as the solver
// image.
func flagsOf(part string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(part, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	return flags
}

func runController(ctx context.Context, args []string) error {
	opts := controller.ContextOptions{
		KubernetesAPIQPS: 50, KubernetesAPIBurst: 100,
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	}
	flags := flagsOf("controller")
	flags.StringVar(&opts.Kubeconfig, "kubeconfig", "", "path of a kubeconfig; in a pod, the default is its service account")
	flags.StringVar(&opts.ClusterResourceNamespace, "cluster-resource-namespace", "kube-system", "namespace of the Secrets of ClusterIssuers")
	flags.BoolVar(&opts.EnableOwnerRef, "enable-certificate-owner-ref", false, "whether Certificates own their Secrets")
	health := flags.String("healthz-listen-address", "0.0.0.0:9403", "listen address of /livez")
	if err := flags.Parse(args); err != nil {
		return err
	}
	factory, err := controller.NewContextFactory(ctx, opts)
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for name, construct := range controller.Known() {
		c, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		group.Go(func() error { return c.Run(5, ctx) })
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	group.Go(func() error { return serveHealth(ctx, *health) })
	return group.Wait()
}

func serveHealth(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	return s.ListenAndServe()
}

func runWebhook(ctx context.Context, args []string) error {
	config, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	flags := flagsOf("webhook")
	options.AddConfigFlags(flags, config)
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := webhook.NewCertManagerWebhookServer(klog.Background(), *config)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func runInjector(ctx context.Context, args []string) error {
	flags := flagsOf("cainjector")
	kubeconfig := flags.String("kubeconfig", "", "path of a kubeconfig; in a pod, the default is its service account")
	enabled, choices := map[string]bool{}, map[string]*bool{}
	for _, kind := range []string{
		cainjector.MutatingWebhookConfigurationName, cainjector.ValidatingWebhookConfigurationName,
		cainjector.APIServiceName, cainjector.CustomResourceDefinitionName,
	} {
		choices[kind] = flags.Bool("enable-"+kind+"s-injectable", true, "whether to inject CA certificates into objects of this kind")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	for kind, choice := range choices {
		enabled[kind] = *choice
	}
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(
		clientgoscheme.AddToScheme, certmanagerv1.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	)
	if err := builder.AddToScheme(scheme); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(util.RestConfigWithUserAgent(config, "cainjector"), ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor:        enabled,
	})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}
