from jaxbench.cli import main

raise SystemExit(main())
